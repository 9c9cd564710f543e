"""The state of an RTF document within a group: each group starts with that of the one around it, and ends with it."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.loaders.rtf_words import ASIDES, CHARSETS, NAMED, QUIET, SKIPPED, codec_of

BODY_LEVEL = 9  # of an outline: no heading


@dataclass(slots=True)
class RichGroup:
    """What holds until its end."""

    destination: str = ""  # whose text is collected; "" of the document's
    skipped: bool = False
    quiet: bool = False
    around: bool = False  # whether it is quiet around the text that is told twice
    hidden: bool = False  # by its format
    deleted: bool = False
    font: int = -1
    fallback: int = 1  # characters that stand for one that is told by its number
    style: int = -1  # of the paragraph
    outline: int = BODY_LEVEL
    in_table: bool = False
    level: int = 0  # of a list

    @property
    def silent(self) -> bool:
        return self.skipped or self.quiet or self.hidden or self.deleted

    def begin(self, word: str) -> None:
        """What the group is for."""
        self.skipped = word in SKIPPED
        if word == "ud":
            self.quiet = self.around
        else:
            around = self.quiet and word not in NAMED and word not in ASIDES
            self.quiet, self.around = around or word in QUIET, around or (word in QUIET and word != "upr")
        if word in NAMED:
            self.destination = word
        elif word in ASIDES:
            self.destination, self.in_table, self.style, self.outline = "", False, -1, BODY_LEVEL

    def change(self, word: str, number: int | None) -> None:
        """A format, whose number may be 0 for its end."""
        value = 0 if number is None else number
        match word:
            case "uc":
                self.fallback = max(0, value)
            case "plain":
                self.hidden = self.deleted = False
            case "v":
                self.hidden = number != 0
            case "deleted" | "mvf":  # moved to another place, where it stands once more
                self.deleted = number != 0
            case "pard":
                self.style, self.outline, self.in_table, self.level = -1, BODY_LEVEL, False, 0
            case "s":
                self.style = value
            case "outlinelevel":
                self.outline = max(0, value)
            case "intbl":
                self.in_table = number != 0
            case "ilvl":
                self.level = value


@dataclass
class FontCodecs:
    """The code pages of fonts, and that of the document for those that tell none."""

    common: str = "cp1252"
    plain: int = -1  # the font of plain text
    _told: dict[int, str] = field(default_factory=dict)
    _western: set[int] = field(default_factory=set)
    _is_mixed: bool = False  # some are for other alphabets

    def tell_charset(self, font: int, charset: int) -> None:
        """0 is the West where other fonts tell others; programs that know one charset write it for any."""
        self._told[font] = CHARSETS.get(charset, "")
        self._is_mixed = self._is_mixed or charset in CHARSETS
        if charset == 0:
            self._western.add(font)

    def tell_page(self, font: int, page: int) -> None:
        self._told[font] = codec_of(page)

    def codec(self, font: int) -> str:
        return self._told.get(font) or ("cp1252" if self._is_mixed and font in self._western else self.common)
