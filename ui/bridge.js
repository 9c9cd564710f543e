// Clicks and keys on the HTML of this page, told to Python; and the tab's own memory. See bridge.py.
const SHELF = "ragcache";
const TOLD_MS = 2500;

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
    const writing = event.target.closest?.("input, textarea, select, [contenteditable=true], [role=combobox]");
    if (writing || event.ctrlKey || event.metaKey || event.altKey) return;
    const shown = document.querySelectorAll("[data-rc-key]");
    const element = [...shown].find((one) => one.dataset.rcKey === event.key);
    if (element) {
      event.preventDefault();
      act(element);
    }
  };
  // What is to be seen plays an animation of this name when it appears.
  const onShown = (event) => event.animationName === "rc-show" && event.target.scrollIntoView({ block: "nearest" });
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
