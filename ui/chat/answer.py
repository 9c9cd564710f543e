"""An answer as HTML: its text, and the sources that it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.client.answers import ServedCitation
from ui.markup import escape, rendered


def answered(message: Mapping[str, Any], number: int) -> str:
    """`number`: its place in the conversation. A marker is `data-rc="cite"` with `data-rc-value="NUMBER:SOURCE"`."""
    text = f'<div class="rc-answer" dir="auto">{rendered(str(message["content"]))}</div>'
    chips = "".join(_chip(one, number, at) for at, one in enumerate(message.get("citations") or ()))
    return f'{text}<div class="rc-sources" role="list" aria-label="Sources">{chips}</div>' if chips else text


def _chip(citation: Mapping[str, Any], number: int, at: int) -> str:
    place = ServedCitation.of(citation).place
    return (
        f'<button class="rc-source" role="listitem" dir="auto" data-rc="cite" data-rc-value="{number}:{at}" '
        f'title="{escape(place)}"><b>{at + 1}</b> {escape(place)}</button>'
    )
