"""Clicks and keys on HTML that Streamlit only shows, and what the browser's tab remembers.

HTML asks for something by `data-rc`, such as `<button data-rc="cite" data-rc-value="12:3">`: a click on it is an action
with that value. So is a key where something shown names it (`data-rc-key`), unless somebody is writing. What
`data-rc-copy` holds is copied by a click, which Python never hears of. Whoever listens to the page is told what
`data-rc-tell` says when it appears (class `rc-tell`), and with it the answer that it stands in. In `data-rc-walk` the
arrow keys lead from one stop to the next.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

NAME = "ragcache_bridge"
_mount = st.components.v2.component(NAME, js=(Path(__file__).parent / "bridge.js").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Action:
    name: str
    value: str


def listen(remember: dict[str, str], *, forget: bool = False) -> Action | None:
    """What somebody has just done, once. `remember`: what this tab is to know after a reload, and nobody else, until it
    is to `forget` it.
    """
    told = _mount(
        key=NAME,
        data={"remember": remember, "forget": forget, "known": remembered() is not None},
        height=1,
        on_action_change=lambda: None,
        on_remembered_change=lambda: None,
    )
    return _action(told.get("action"))


def remembered() -> dict[str, str] | None:
    """What the tab knew when it was opened; None until it has told."""
    state: Any = st.session_state.get(NAME)
    told = state.get("remembered") if state else None
    try:
        values = json.loads(told) if isinstance(told, str) else None
    except ValueError:
        return {}
    return None if not isinstance(values, dict) else {str(name): str(value) for name, value in values.items()}


def _action(told: object) -> Action | None:
    if not isinstance(told, dict):
        return None
    return Action(str(told.get("name", "")), str(told.get("value", "")))
