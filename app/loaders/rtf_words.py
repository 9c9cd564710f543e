"""Control words of RTF: what kinds of groups they begin, what they change, and which characters they stand for."""

from __future__ import annotations

import codecs

# Groups of texts that are none of the document. All of a star are, but for those below.
LEFT_OUT = """
    colortbl pict nonshppict header headerl headerr headerf footer footerl footerr footerf ftnsep ftnsepc aftnsep
    fldinst xe tc rxe txe nonesttables sp filetbl revtbl listtable listoverridetable objdata shprslt
"""
SKIPPED = frozenset(LEFT_OUT.split())
STARRED = frozenset({"annotation", "atnauthor", "ud", "shpinst"})
QUIET = frozenset({"upr", "shpinst", "info"})  # whose text is told again, or is in groups of its own
ASIDES = frozenset({"footnote", "annotation", "shptxt"})
NAMED = frozenset({"fonttbl", "stylesheet", "title", "atnauthor", "listtext", "pntext"})  # texts of their own
DESTINATIONS = SKIPPED | QUIET | ASIDES | NAMED | {"ud"}
STATES = """
    f fcharset cpg deff ansicpg mac pc pca uc plain v deleted mvf pard s outlinelevel intbl ilvl
"""
FORMATS = frozenset(STATES.split())
ENDS = frozenset({"par", "sect", "cell", "row"})
CHARACTERS = {
    "tab": "\t", "line": "\n", "lbr": "\n", "page": "\n", "column": "\n", "emdash": "—", "endash": "–", "bullet": "•",
    "lquote": "‘", "rquote": "’", "ldblquote": "“", "rdblquote": "”", "emspace": " ", "enspace": " ", "qmspace": " ",
    "nestcell": "; ",
}  # fmt: skip
SYMBOLS = {b"~": "\xa0", b"_": "-", b"\\": "\\", b"{": "{", b"}": "}"}
CHARSETS = {
    77: "mac-roman", 128: "cp932", 129: "cp949", 130: "johab", 134: "gb18030", 136: "big5hkscs", 161: "cp1253",
    162: "cp1254", 163: "cp1258", 177: "cp1255", 178: "cp1256", 186: "cp1257", 204: "cp1251", 222: "cp874",
    238: "cp1250", 254: "cp437", 255: "cp850",
}  # fmt: skip
PAGES = {65001: "utf-8", 10000: "mac-roman", 936: "gb18030", 950: "big5hkscs"}


def codec_of(page: int) -> str:
    """Of a code page, or that of the West where nobody knows the page."""
    try:
        return codecs.lookup(PAGES.get(page, f"cp{page}")).name
    except LookupError:
        return "cp1252"
