"""OpenDocument texts as Markdown: headings, lists, tables, notes and comments. The format knows no pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from app.loaders.base import Parsed, SourceFile
from app.loaders.odml import (
    CONTENT,
    OfficeStyles,
    read_part,
    refuse_encrypted,
    styles_of,
    tell_left_out,
    title_of,
)
from app.loaders.odml_text import OfficeText
from app.loaders.soundness import ODT, opened
from app.loaders.text import first_heading


def load_odt(source: SourceFile) -> Parsed:
    left_out: Counter[str] = Counter()
    with opened(source, ODT) as archive:
        refuse_encrypted(source, archive)
        content = _Content(styles_of(source, archive), left_out)
        with archive.open(CONTENT) as part:
            for _ in read_part(source, part, content):
                pass
        text, title = content.text.close(), title_of(source, archive)
    tell_left_out(source, left_out)
    return Parsed(text, "markdown", title or first_heading(text) or source.name)


class _Content:
    """Styles, and behind them the text."""

    def __init__(self, styles: OfficeStyles, left_out: Counter[str]):
        self._styles, self.text = styles, OfficeText(styles, left_out)
        self._depth = 0  # within the text

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if self._depth:
            self.text.start(name, attributes)
        elif name != "office:text":
            self._styles.start(name, attributes)
        self._depth += bool(self._depth) or name == "office:text"

    def end(self, name: str) -> None:
        if self._depth > 1:
            self.text.end(name)
        self._depth = max(0, self._depth - 1)

    def data(self, text: str) -> None:
        if self._depth:
            self.text.data(text)
