"""Other budgets of the tiers, told before they hold; for who administers all collections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from app.client import cache
from app.client.amounts import count, size
from app.client.connection import ServerConnection, ServerError
from ui.cache.figures import NAMES
from ui.cache.tending import TOLD
from ui.markup import escape, refusal

Record = Mapping[str, Any]
GIB = 1 << 30
LEAST = 0.001  # GiB
MOST = 1_000_000.0


def show(connection: ServerConnection) -> None:
    try:
        now = cache.budgets(connection)
    except ServerError as error:  # the KV is another server's, or none is kept
        st.html(f'<p class="rc-hint">{escape(str(error))}</p>')
        return
    st.html(
        '<p class="rc-hint">Give a tier another budget, and see what that does before it holds. It holds until the '
        "server ends.</p>"
    )
    with st.container(horizontal=True, vertical_alignment="bottom"):
        asked = {tier: nbytes for tier, one in now.items() if (nbytes := _asked(tier, one)) is not None}
    if not asked:
        return
    try:
        ahead = cache.budgets(connection, asked)
    except ServerError as error:
        st.html(refusal(str(error)))
        return
    st.html("".join(effect(ahead[tier]) for tier in asked if tier in ahead))
    if st.button("Change it", type="primary", key="cache-budgets"):
        _change(connection, asked)


def _asked(tier: str, one: Record) -> int | None:
    """Bytes, where they are others than now."""
    now = None if one["budget"] is None else round(one["budget"] / GIB, 3)
    name = NAMES.get(tier, tier)
    value = st.number_input(
        f"{name}, in GiB",
        min_value=LEAST if now is None else min(LEAST, now),
        max_value=MOST if now is None else max(MOST, now),
        value=now,
        step=0.5,
        format="%.3f",
        key=f"budget-{tier}-{now}",
        width=220,
    )
    return None if value is None or value == now else round(value * GIB)


def effect(one: Record) -> str:
    """Of one tier, in words."""
    tier, gone = str(one["tier"]), int(one["evicted_entries"])
    before = "no limit" if one["budget"] is None else size(one["budget"])
    parts = [f"<strong>{escape(NAMES.get(tier, tier))}</strong>: {before} → {size(one['budget_asked'])}."]
    if gone:
        went = f"{count(gone, 'entry', 'entries')} ({size(one['evicted_bytes'])})"
        parts.append(f'<span class="rc-warm">{went} {"goes" if gone == 1 else "go"} at once.</span>')
    else:
        parts.append("Nothing goes at once.")
    parts.append(rates(one))
    parts.append(f"<code>{escape(str(one['setting']))}</code> keeps it beyond the end of the server.")
    return f'<p class="rc-kv-line">{" ".join(parts)}</p>'


def rates(one: Record) -> str:
    now, then = one["hit_rate"], one["hit_rate_asked"]
    if now is None or then is None:
        return "What that does to later hits is not known yet: nothing was used twice since the server started."
    uses = count(one["uses"], "use")
    return f"Of {uses} since the server started, the budget of now finds {now:.0%} there, and this one {then:.0%}."


def _change(connection: ServerConnection, asked: Mapping[str, int]) -> None:
    try:
        done = cache.set_budgets(connection, asked)
    except ServerError as error:
        st.html(refusal(str(error)))
        return
    told = [f"{NAMES[tier]} {size(nbytes)}" for tier, nbytes in asked.items() if tier in NAMES]
    gone = sum(int(one["evicted_bytes"]) for one in done.values())
    st.session_state[TOLD] = f"Budgets hold: {', '.join(told)}. {size(gone)} made room."
    st.rerun()
