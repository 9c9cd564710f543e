"""The page as a whole: where KV is, what it was good for, and what can be done to it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.client import cache
from app.client.amounts import count
from app.client.connection import ServerConnection, ServerError
from ui import access
from ui.bridge import Action
from ui.cache import budgets, figures, reuse, tending, timeline
from ui.cache.timeline import PERIODS
from ui.markup import escape, refusal

Record = Mapping[str, Any]
COLLECTION, PERIOD = "collection", "period"  # of the page's address
EMPTY = """<div class="rc-empty"><h2>Nothing is cached yet</h2><p>{why}</p></div>"""
OF_ALL = (
    '<p class="rc-hint">How full memory and disk are, and their budgets, is told to an admin key of all collections. '
    "This one sees its own.</p>"
)
WHEN = {
    "auto": "as documents come in, as far as it fits, and as answers use them",
    "eager": "as documents come in",
    "on-use": "as answers use documents",
    "off": "never",
}


def show(action: Action | None) -> None:
    connection = access.connection()
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.title("Cache")
        st.button("Refresh", icon=":material/refresh:", type="tertiary")
    try:
        tending.act(connection, action)
    except ServerError as error:
        st.html(refusal(str(error)))
    if told := st.session_state.pop(tending.TOLD, ""):
        st.success(told, icon=":material/check:")
    state = cache.state(connection)
    names = [str(one["name"]) for one in state["collections"]]
    if not names:
        _empty("There is no collection that you may see. KV is computed when documents are there to be read.")
        return
    _places(connection, state, _opened(action, names))


def _empty(why: str) -> None:
    st.html(EMPTY.format(why=why))
    if documents := st.session_state.get(access.PAGES, {}).get("documents"):
        st.page_link(documents, label="Add documents", icon=":material/description:")


def _opened(action: Action | None, names: list[str]) -> str | None:
    """The collection that is looked at, and None where it is all of them."""
    if action is not None and action.name == figures.OPEN:
        if st.query_params.get(COLLECTION) == action.value:  # a second click closes it
            st.query_params.pop(COLLECTION, None)
        else:
            st.query_params[COLLECTION] = action.value
    wanted = st.query_params.get(COLLECTION)
    return wanted if wanted in names else names[0] if len(names) == 1 else None


def _places(connection: ServerConnection, state: Record, opened: str | None) -> None:
    st.html(about(state, opened))
    for told in gated(state, opened):
        st.html(f'<p class="rc-hint" dir="auto"><strong>{escape(told)}</strong></p>')
    found, tiers = state["collections"], state["tiers"]
    if not any(one["bytes"] for one in found):
        computed = WHEN.get(str(state["kv"]), "")
        st.html(EMPTY.format(why=f"KV is computed {computed}. What is kept is told here, and what it is good for."))
    disk = next((one["budget"] for one in tiers or () if one["tier"] == "disk"), None)
    st.header("Where it is")
    st.html(figures.tiers(tiers) if tiers else "" if tiers is not None else OF_ALL)
    st.html(figures.collections(found, disk, opened))
    if opened is not None:
        with st.container(border=True, key="cache-collection"):
            tending.show(connection, opened, str(state["kv"]))
    if tiers is not None:
        with st.expander("Change budgets", icon=":material/tune:"):
            budgets.show(connection)
    _good_for(connection, opened, several=len(found) > 1)


def about(state: Record, opened: str | None = None) -> str:
    facts = [f"KV of {state['model']}", f"computed {WHEN.get(str(state['kv']), state['kv'])}"]
    facts.append(f"kept as {state['codec']}")
    near = [one for one in quality(state, opened) if one["kl"] is not None]
    if near:
        answers = sum(int(one["measured"]) for one in near)
        worst = max(float(one["kl"]) for one in near)
        told = f"answers within {worst:.3f} nats a token of those without the cache"
        facts.append(f"{told}, by {count(answers, 'answer')} measured")
    return f'<div class="rc-facts">{"".join(f"<span>{escape(str(one))}</span>" for one in facts)}</div>'


def quality(state: Record, opened: str | None) -> list[Record]:
    """Of the collection that is looked at, or of all."""
    return [one for one in state.get("quality", ()) if opened in (None, one["collection"])]


def gated(state: Record, opened: str | None) -> list[str]:
    """What the quality gate does about answers that have drifted."""
    return [f"“{one['collection']}”: {one['told']}." for one in quality(state, opened) if one["told"]]


def _good_for(connection: ServerConnection, opened: str | None, several: bool) -> None:
    st.header("What it was good for")
    if several:
        whose = (
            f"In answers from “{escape(opened)}”." if opened else "In answers from all collections that you may see."
        )
        st.html(f'<p class="rc-hint" dir="auto">{whose}</p>')
    period = _period()
    told = cache.history(connection, period.step, opened)
    now = time.time()
    shown = timeline.columns(told["data"], period, now)
    points = [one for one in told["data"] if one["start"] >= shown[0].start]
    st.html(f"{figures.sums(total(points))}{timeline.drawn(shown, period, timeline.zone(st.context.timezone))}")
    st.header("Chunks that were reused most")
    st.html(reuse.listed(cache.reused(connection, opened), named=several and opened is None))


def _period() -> timeline.Period:
    names = [one.name for one in PERIODS]
    wanted = st.query_params.get(PERIOD)
    chosen = st.segmented_control(
        "Period",
        names,
        default=wanted if wanted in names else names[1],
        label_visibility="collapsed",
        key="cache-period",
    )
    name = chosen or names[1]
    if name != (wanted or names[1]):
        st.query_params[PERIOD] = name
    return PERIODS[names.index(name)]


def total(points: list[Record]) -> Record:
    """Sums of what a period has of the server's steps."""
    names = ("answers", "reused", "repaired", "computed")
    sums: dict[str, Any] = {name: sum(one[name] for one in points) for name in names}
    tokens = sums["reused"] + sums["repaired"] + sums["computed"]
    sums["hit_rate"] = (sums["reused"] + sums["repaired"]) / tokens if tokens else None
    tiers = {str(name): 0 for one in points for name in one["tiers"]}
    sums["tiers"] = {name: sum(one["tiers"].get(name, 0) for one in points) for name in tiers}
    for name in ("measured", "estimated"):
        sums[name] = {part: sum(one[name][part] for one in points) for part in ("answers", "seconds")}
    return sums
