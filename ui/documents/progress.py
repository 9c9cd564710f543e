"""Files on their way: how far each is, for how long, and why one failed. The server knows: a reload loses nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app.client import library
from app.client.amounts import count, duration, size
from app.client.connection import ServerConnection, ServerError
from ui.bridge import Action
from ui.markup import escape, label, refusal

Job = Mapping[str, Any]
LOOK_S = 1.0
SCOPE = 403
FRESH_S = 600.0  # what ended so long ago is told no more
HIDDEN, WAITED = "hidden-jobs", "awaited-jobs"  # of the session
CANCEL, RETRY, HIDE = "job-cancel", "job-retry", "job-hide"
STAGES = {"read": "Read", "split": "Split", "embedded": "Embedded", "kv": "KV"}
MOST = 30  # that are shown one by one


def act(connection: ServerConnection, action: Action | None) -> None:
    """Raises ServerError where the server refuses."""
    if action is None:
        return
    if action.name == CANCEL:
        library.cancel(connection, action.value)
    elif action.name == RETRY:
        library.retry(connection, action.value)
    elif action.name == HIDE:
        st.session_state.setdefault(HIDDEN, set()).add(action.value)


def known_jobs(connection: ServerConnection, collection: str) -> list[Job] | None:
    """Those that are to be shown; None where this key sends nothing."""
    found = allowed_jobs(connection, collection)
    return None if found is None else shown_jobs(found)


def allowed_jobs(connection: ServerConnection, collection: str | None = None) -> list[Job] | None:
    """All that are kept; None where this key sends nothing."""
    try:
        return list(library.jobs(connection, collection))
    except ServerError as error:
        if error.answered != SCOPE:
            raise
        return None


def show(connection: ServerConnection, collection: str, jobs: Sequence[Job]) -> None:
    """A part of the page that looks again each second while something is on its way, and disturbs no other."""
    every = LOOK_S if under_way(jobs) else None
    st.fragment(_look, run_every=every)(connection, collection)


def _look(connection: ServerConnection, collection: str) -> None:
    try:
        jobs = shown_jobs(library.jobs(connection, collection))
    except ServerError as error:  # it may be back at the next look
        st.html(refusal(str(error)))
        return
    waited = st.session_state.get(WAITED, set())
    st.session_state[WAITED] = {one["id"] for one in under_way(jobs)}
    moving = bool(st.session_state[WAITED])
    if rows := [one for one in jobs if moving or one["state"] != "done"]:
        st.html(jobs_line(rows))
    if line := outcome(jobs):
        st.markdown(f":material/check: {line}")
    if waited - st.session_state[WAITED]:
        st.rerun()  # what has ended changes the rest of the page


def under_way(jobs: Sequence[Job]) -> list[Job]:
    return [one for one in jobs if one["state"] not in library.ENDED]


def shown_jobs(jobs: Sequence[Job], now: float | None = None) -> list[Job]:
    """The last one of each file, as long as it is on its way, was in time, or can be tried again; the oldest first."""
    moment = time.time() if now is None else now
    hidden = st.session_state.get(HIDDEN, set())
    newest: dict[str, Job] = {}
    for one in jobs:  # the newest come first
        newest.setdefault(str(one["name"]), one)
    found = [one for one in newest.values() if one["id"] not in hidden and _matters(one, moment)]
    return sorted(found, key=lambda one: (one["created"], one["name"]))


def _matters(job: Job, now: float) -> bool:
    return job["state"] != "done" or now - (job["finished"] or now) < FRESH_S


def jobs_line(jobs: Sequence[Job]) -> str:
    """As HTML: those that need somebody, those that move, and then the others."""
    order = {"failed": 0, "running": 1, "cancelled": 2, "queued": 3, "done": 4}
    ranked = sorted(jobs, key=lambda one: order.get(one["state"], 5))
    rest = len(ranked) - MOST
    more = f'<p class="rc-hint">… and {count(rest, "more file")}</p>' if rest > 0 else ""
    return f'<div class="rc-jobs" role="list">{"".join(map(row, ranked[:MOST]))}{more}</div>'


def row(job: Job) -> str:
    name = f'<span class="rc-job-name" dir="auto">{escape(str(job["name"]))}</span>'
    inside = f"{name}<span>{_buttons(job)}</span>{_steps(job)}"
    if job["error"]:
        inside += f'<span class="rc-reason rc-job-wide" dir="auto">{escape(str(job["error"]))}</span>'
    if job["state"] == "running":
        share = progress_share(job)
        inside += f'<div class="rc-track rc-job-wide"><div style="width: {share:.0%}"></div></div>'
    return f'<div class="rc-job" role="listitem">{inside}</div>'


def progress_share(job: Job) -> float:
    """By stages, of which the KV takes the longest."""
    weights = {"read": 0.05, "split": 0.05, "embedded": 0.15, "kv": 0.75}
    stages = _stages(job)
    done = sum(weights[name] * min(1.0, did / of) for name, (did, of) in stages.items() if name in weights and of)
    return min(1.0, done)


def _steps(job: Job) -> str:
    if job["state"] == "queued":
        waits = (
            "is in, the rest of its KV waits" if job["progress"].get("document") else f"waits · {size(job['bytes'])}"
        )
        return f'<div class="rc-steps"><span>{waits}</span></div><span></span>'
    if job["state"] == "cancelled":
        return '<div class="rc-steps"><span>cancelled</span></div><span></span>'
    if job["state"] == "failed" and not _stages(job):
        return ""
    stages, ended = _stages(job), job["state"] in library.ENDED
    now = "" if ended else next((name for name in STAGES if not _is_done(stages, name)), "")
    items = []
    for name, told_name in STAGES.items():
        if ended and name not in stages:
            continue
        state = "rc-done" if _is_done(stages, name) else "rc-now" if name == now else ""
        items.append(f'<span class="{state}">{_step(told_name, name, stages, state)}</span>')
    left = job["progress"].get("seconds_left") if not ended else None
    told_left = f"about {duration(left)} left" if isinstance(left, int | float) else ""
    return f'<div class="rc-steps">{"".join(items)}</div><span class="rc-job-left">{told_left}</span>'


def _step(told_name: str, name: str, stages: Mapping[str, tuple[int, int]], state: str) -> str:
    did, of = stages.get(name, (0, 0))
    if state == "rc-done":
        return f"✓ {told_name}" + (f" · {count(of, 'chunk')}" if name == "split" else "")
    return f"{told_name} {did:,} of {of:,}" if of and name != "read" else told_name


def _is_done(stages: Mapping[str, tuple[int, int]], name: str) -> bool:
    did, of = stages.get(name, (0, 1))
    return did >= of


def _stages(job: Job) -> dict[str, tuple[int, int]]:
    """What a server tells, as far as it is that."""
    told_stages = job["progress"].get("stages")
    found = {}
    for name, one in (told_stages if isinstance(told_stages, dict) else {}).items():
        if isinstance(one, dict) and all(isinstance(one.get(part), int) for part in ("done", "of")):
            found[str(name)] = (int(one["done"]), int(one["of"]))
    return found


def _buttons(job: Job) -> str:
    if job["state"] not in library.ENDED:
        return _button(CANCEL, job, "Cancel")
    if job["state"] in ("failed", "cancelled"):
        again = "" if job["progress"].get("final") else f"{_button(RETRY, job, 'Retry')} "  # the file is not kept
        return f"{again}{_button(HIDE, job, 'Hide')}"
    return '<span class="rc-job-left">done</span>'


def _button(name: str, job: Job, text: str) -> str:
    about = escape(f"{text} {job['name']}")
    return (
        f'<button class="rc-quiet" data-rc="{name}" data-rc-value="{escape(str(job["id"]))}" '
        f'aria-label="{about}">{text}</button>'
    )


def outcome(jobs: Sequence[Job]) -> str:
    """In a line, for an element that reads Markdown; nothing while something is on its way, or where nothing came."""
    done = [one for one in jobs if one["state"] == "done"]
    if not done or under_way(jobs):
        return ""
    if len(done) == 1:
        return f"{label(str(done[0]['name']))} is in."
    return f"{count(len(done), 'document')} are in."
