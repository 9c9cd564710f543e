"""One collection: what its KV costs and saves, and what is done to it by hand. Each effect is told before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from app.client import cache, library
from app.client.amounts import count, duration, size
from app.client.connection import ServerConnection, ServerError
from ui.bridge import Action
from ui.cache.figures import bar
from ui.markup import escape, label, refusal

Record = Mapping[str, Any]
TOLD = "cache-told"  # of the session: what was done, for the next run
STOP = "warm-stop"  # an action
LOOK_S = 5.0
WIDTH = 448  # of what opens, in pixels: a broader one turns to the left, over the sidebar
REFUSED = (403, 404)
NOT_KNOWN = "not known yet"


def act(connection: ServerConnection, action: Action | None) -> None:
    """Raises ServerError where the server refuses."""
    if action is not None and action.name == STOP:
        library.cancel(connection, action.value)


def show(connection: ServerConnection, name: str, kv: str) -> None:
    """`kv`: when the server computes any."""
    found = cache.effects(connection, name)
    card = found["collection"]
    st.html(f'<h2 class="rc-kv-title" dir="auto">{escape(name)}</h2>{facts(card)}{cost(found["cost"], card)}')
    _jobs(connection, name)
    with st.container(horizontal=True):
        if found["warm"]:
            _warm(connection, name, found["warm"])
        if found["pin"]:
            _pin(connection, name, found["pin"], card)
        if found["evict"]:
            _evict(connection, name, found["evict"], card)
    if told := lacking(found, kv):
        st.html(f'<p class="rc-hint">{told}</p>')


def facts(card: Record) -> str:
    parts = [f"KV of {card['cached']:,} of {count(card['chunks'], 'chunk')} serves you"]
    parts.append(f"{size(card['bytes'])} in {count(card['entries'], 'entry', 'entries')} on the disk")
    if card["pinned_bytes"]:
        parts.append(f"{size(card['pinned_bytes'])} pinned")
    return f'<div class="rc-facts">{"".join(f"<span>{one}</span>" for one in parts)}</div>'


def cost(found: Record, card: Record) -> str:
    """From measurements alone."""
    captured, saved, questions = found["captured_s"], found["saved_s"], found["questions"]
    took = NOT_KNOWN if captured is None else f"{seconds(captured)} of computing"
    saves = NOT_KNOWN
    if saved is not None:
        way = "sooner" if saved >= 0 else "later"
        saves = f"{seconds(abs(saved))} {way} a question, measured on {found['compared']:,}"
    rows = [
        ("Cost", f"{size(card['bytes'])} on the disk, {took}"),
        ("Saves", saves),
        ("Pays back", _payback(captured, saved, questions, found["answers"])),
    ]
    told = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows)
    return f'<dl class="rc-kv-cost">{told}</dl>'


def _payback(captured: float | None, saved: float | None, questions: int | None, answers: int) -> str:
    asked = f"{count(answers, 'question')} so far"
    if questions is not None:
        when = "it has" if answers >= questions else "not yet"
        return f"after {count(questions, 'question')}; {asked}, so {when}"
    if saved is None:
        return f"{NOT_KNOWN}: “Answer without cache” under an answer in the chat measures it. {asked.capitalize()}"
    if captured is None:
        return f"{NOT_KNOWN}: what was computed here was computed for answers anyway. {asked.capitalize()}"
    return f"not as measured so far: nothing is saved. {asked.capitalize()}"


def seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else duration(value)


def takes(time: Record) -> str:
    """How long, and how that is known."""
    if time["seconds"] is None:
        return "how long that takes is not known yet"
    basis = "as measured here" if time["basis"] == "measured" else "as estimated by this machine’s pace"
    return f"that takes about {seconds(time['seconds'])}, {basis}"


def lacking(found: Record, kv: str) -> str:
    """What this key may not do."""
    if kv == "off":
        return "This server computes no KV (RAGCACHE_KV is off), so there is none to be warmed."
    if found["evict"] is None:
        return (
            "This key reads and asks. To warm or evict KV takes a key with the scope “ingest”, to pin it “admin”: "
            "whoever runs the server makes one."
        )
    return "" if found["pin"] else "To pin KV takes a key with the scope “admin”."


# -- what is done -----------------------------------------------------------------------------------------------------


def _warm(connection: ServerConnection, name: str, effect: Record) -> None:
    with st.popover("Warm", icon=":material/local_fire_department:"), st.container(width=WIDTH):
        st.html(f'<p class="rc-hint">{warming(effect)}</p>')
        if st.button("Compute it", type="primary", disabled=not effect["chunks"], key=f"cache-warm-{name}"):
            _do(lambda: cache.warm(connection, name), lambda done: f"{label(name)} is being warmed.")


def warming(effect: Record) -> str:
    if not effect["chunks"]:
        return "All chunks have KV that serves you. There is nothing to compute."
    have = "has" if effect["chunks"] == 1 else "have"
    return (
        f"{count(effect['chunks'], 'chunk')} ({count(effect['tokens'], 'token')}) {have} no KV that serves you. "
        f"To compute it takes about {size(effect['bytes'])} of the disk; {takes(effect['takes'])}. First questions "
        "about them find it there then."
    )


def _evict(connection: ServerConnection, name: str, effect: Record, card: Record) -> None:
    with st.popover("Evict", icon=":material/delete_sweep:"), st.container(width=WIDTH):
        st.html(f'<p class="rc-hint">{evicting(effect, card)}</p>')
        sure = st.checkbox("I do not need it now", key=f"cache-sure-{name}", disabled=not effect["entries"])
        text = f"Evict {size(effect['bytes'])}"
        if st.button(text, type="primary", disabled=not (effect["entries"] and sure), key=f"cache-evict-{name}"):
            _do(lambda: cache.evict(connection, name), lambda done: _gone(name, done))


def evicting(effect: Record, card: Record) -> str:
    stays = "What is pinned stays, and what other collections have too."
    if not effect["entries"]:
        return f"Nothing would go. {stays}" if card["entries"] else "There is no KV of it, so nothing would go."
    return (
        f"{count(effect['entries'], 'entry', 'entries')} ({size(effect['bytes'])}) go for good, from memory, disk "
        f"and object store. Answers stay right, and compute what they lack. To compute all of it again is "
        f"{count(effect['tokens'], 'token')}: {takes(effect['again'])}. {stays}"
    )


def _gone(name: str, done: Record) -> str:
    entries = count(done["entries"], "entry", "entries")
    return f"{label(name)}: {entries} of KV, {size(done['bytes'])}, went."


def _pin(connection: ServerConnection, name: str, effect: Record, card: Record) -> None:
    with st.popover("Pin", icon=":material/keep:"), st.container(width=WIDTH):
        st.html(f'<p class="rc-hint">{pinning(effect)}</p>{_pins(effect)}')
        new = effect["bytes"] > card["pinned_bytes"] and (effect["pinned"] or 0) <= effect["most"]
        if st.button("Pin what is there", type="primary", disabled=not new, key=f"cache-pin-{name}"):
            _do(lambda: cache.pin(connection, name), lambda done: f"{label(name)}: {size(done['bytes'])} stay.")
        if card["pinned_bytes"]:
            st.html(
                f'<p class="rc-hint">{size(card["pinned_bytes"])} of it are pinned. Let go, they make room again for '
                "what is used more.</p>"
            )
            if st.button("Unpin", key=f"cache-unpin-{name}"):
                _do(lambda: cache.unpin(connection, name), lambda done: f"{label(name)} is not pinned any more.")


def pinning(effect: Record) -> str:
    if not effect["entries"]:
        return "There is no KV of it that could be kept. Warm it first."
    told = (
        f"{count(effect['entries'], 'entry', 'entries')} ({size(effect['bytes'])}) never make room for other KV "
        "then, until they are let go. What is computed later is not among them."
    )
    if (effect["pinned"] or 0) > effect["most"]:
        return f"{told} But that would be more than may be pinned: unpin another collection, or give the disk more."
    return told


def _pins(effect: Record) -> str:
    pinned, most = effect["pinned"], effect["most"]
    if pinned is None:  # of others too, which this key may not see
        return ""
    about = f"{size(pinned)} of {size(most)} that may be pinned would be"
    return f'<p class="rc-sub">{about}</p>{bar(pinned / most if most else 0.0, about)}'


def _do(work: Callable[[], Record], told: Callable[[Record], str]) -> None:
    try:
        done = work()
    except ServerError as error:
        st.html(refusal(str(error)))
        return
    st.session_state[TOLD] = told(done)
    st.rerun()


# -- warming that is under way ----------------------------------------------------------------------------------------


def _jobs(connection: ServerConnection, name: str) -> None:
    """A part of the page that looks again now and then while something is under way, and disturbs no other."""
    if _under_way(connection, name):
        st.fragment(_look, run_every=LOOK_S)(connection, name)


def _look(connection: ServerConnection, name: str) -> None:
    try:
        jobs = _under_way(connection, name)
    except ServerError as error:  # it may be back at the next look
        st.html(refusal(str(error)))
        return
    if not jobs:
        st.rerun()  # what has ended changes the rest of the page
    st.html(f'<div class="rc-jobs" role="list">{"".join(map(job, jobs))}</div>')


def _under_way(connection: ServerConnection, name: str) -> list[Record]:
    try:
        found = cache.warming(connection)
    except ServerError as error:
        if error.answered not in REFUSED:
            raise
        return []
    return [one for one in found if one["collection"] == name and one["state"] not in library.ENDED]


def job(one: Record) -> str:
    done, of = (int(one["progress"].get(part) or 0) for part in ("chunks", "of_chunks"))
    told = f"{done:,} of {count(of, 'chunk')}" if of else "waits for its turn"
    button = f'<button class="rc-quiet" data-rc="{STOP}" data-rc-value="{escape(str(one["id"]))}">Stop</button>'
    share = done / of if of else 0.0
    return (
        f'<div class="rc-job" role="listitem"><span class="rc-job-name">Warming · {told}</span><span>{button}</span>'
        f'<div class="rc-track rc-job-wide"><div style="width: {share:.0%}"></div></div></div>'
    )
