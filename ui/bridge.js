// Clicks and keys on the HTML of this page, told to Python; and the tab's own memory. See bridge.py.
const SHELF = "ragcache";
const TOLD_MS = 2500;
const LIVE = "rc-live";
const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

async function copy(button) {
  try {
    if (navigator.clipboard) await navigator.clipboard.writeText(button.dataset.rcCopy);
    else copyByHand(button.dataset.rcCopy); // a browser has a clipboard only where the page comes over https or loopback
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed here";
  }
  setTimeout(() => (button.textContent = "Copy"), TOLD_MS);
}

function copyByHand(text) {
  const area = document.body.appendChild(document.createElement("textarea"));
  area.value = text;
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  if (!done) throw new Error("nothing was copied");
}

// For whoever listens to the page: what only the eye would see come. It stays, since a reader hears changes alone.
function tell(element) {
  let live = document.getElementById(LIVE);
  if (!live) {
    live = document.body.appendChild(document.createElement("div"));
    live.id = LIVE;
    live.setAttribute("role", "status");
  }
  const answer = element.closest(".rc-said")?.querySelector(".rc-answer")?.cloneNode(true);
  for (const marker of answer?.querySelectorAll("button") ?? []) marker.remove();
  const told = `${element.dataset.rcTell} ${answer?.textContent ?? ""}`.trim();
  if (live.textContent !== told) live.textContent = told; // the same may be drawn anew
}

// Of a group one is a stop of the Tab key, and the arrows lead to the others.
function walk(event) {
  const group = event.target.closest?.("[data-rc-walk]");
  if (!group || !(event.key in STEPS || event.key === "Home" || event.key === "End")) return;
  const stops = [...group.querySelectorAll("[tabindex]")];
  const at = stops.indexOf(event.target);
  if (at < 0) return;
  const to = event.key === "Home" ? 0 : event.key === "End" ? stops.length - 1 : at + STEPS[event.key];
  event.preventDefault();
  if (!stops[to]) return;
  event.target.tabIndex = -1;
  stops[to].tabIndex = 0;
  stops[to].focus();
}

export default function bridge({ data, setTriggerValue, setStateValue }) {
  const remember = data?.remember ?? {};
  if (data?.forget) sessionStorage.removeItem(SHELF);
  else if (Object.keys(remember).length) sessionStorage.setItem(SHELF, JSON.stringify(remember));
  // Also a session that begins without a reload, when a connection was lost for long, has not been told.
  if (!data?.known) setStateValue("remembered", sessionStorage.getItem(SHELF) ?? "{}");

  document.documentElement.dataset.ragcache = data?.known ? "ready" : "opening";

  const act = (element) => {
    setTriggerValue("action", { name: element.dataset.rc, value: element.dataset.rcValue ?? "" });
  };
  const onClick = (event) => {
    const copied = event.target.closest?.("[data-rc-copy]");
    if (copied) copy(copied);
    const element = event.target.closest?.("[data-rc]");
    if (element) {
      event.preventDefault();
      act(element);
    }
  };
  const onKey = (event) => {
    if (!event.ctrlKey && !event.metaKey && !event.altKey) walk(event);
    if (event.defaultPrevented) return;
    const writing = event.target.closest?.("input, textarea, select, [contenteditable=true], [role=combobox]");
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = document.querySelectorAll("[data-rc-key]");
    const element = [...shown].find((one) => one.dataset.rcKey === event.key);
    if (element) {
      event.preventDefault();
      act(element);
    }
  };
  // What is to be seen, or told, plays an animation of such a name when it appears.
  const onShown = (event) => {
    if (event.animationName === "rc-show") event.target.scrollIntoView({ block: "nearest" });
    if (event.animationName === "rc-tell") tell(event.target);
  };
  const onToggle = (event) => event.target.open && event.target.lastElementChild.scrollIntoView({ block: "nearest" });
  document.addEventListener("animationstart", onShown);
  document.addEventListener("toggle", onToggle, true); // it does not bubble
  document.addEventListener("click", onClick);
  document.addEventListener("keydown", onKey);
  return () => {
    document.removeEventListener("animationstart", onShown);
    document.removeEventListener("toggle", onToggle, true);
    document.removeEventListener("click", onClick);
    document.removeEventListener("keydown", onKey);
  };
}
