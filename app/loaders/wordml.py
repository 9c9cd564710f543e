"""Parts of Word documents, written anew where the library that reads them would leave text out.

Its own handlers cannot be added to. So what it does not know becomes what it does: fields, directions of text and
readings of characters are opened, equations become their text, and drawings the older kind whose text boxes it reads.
Equations of all office files are told on one line, as people type them: `x^2/(1+y)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from typing import IO, Any
from xml.etree.ElementTree import TreeBuilder
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

MATH = (
    "http://schemas.openxmlformats.org/officeDocument/2006/math",
    "http://purl.oclc.org/ooxml/officeDocument/math",  # of strict files
)
NOT_TOLD = frozenset({"del", "moveFrom", "Fallback"})  # of the revisions and alternatives within
SIGNS = {"sup": "^", "sub": "_", "lim": "_", "den": "/", "num": ""}  # without them 10 to the 6th reads as 106
SEPARATORS = {"m": "; ", "mr": ", ", "eqArr": "; "}
WORD = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",  # of strict files
)
VML = "urn:schemas-microsoft-com:vml"
COMPATIBILITY = "http://schemas.openxmlformats.org/markup-compatibility/2006"
XML = "http://www.w3.org/XML/1998/namespace"
KINDS_OF_FIELD = tuple(f"{namespace} fldCharType" for namespace in WORD)


def equation(element: Any) -> str:
    """What an element of ElementTree or lxml says: an oMath, or any part of one."""
    tag = _tag(element)
    if tag == "t":
        return element.text or ""
    if tag.endswith("Pr") or tag in NOT_TOLD:
        return ""
    parts = [part for child in element if (part := equation(child))]
    if tag == "d":
        return "".join(_delimited(element, parts))
    whole = SEPARATORS.get(tag, "").join(parts)
    if tag in SIGNS:
        return SIGNS[tag] + _as_one(whole) if whole else ""
    if tag == "deg":
        return _as_one(whole) if whole else ""
    if tag == "fName":
        return f"{whole} "
    if tag == "rad":
        base = _as_one(parts.pop()) if parts else ""
        return f"{''.join(parts)}√{base}"
    return _character(element, "chr", "∫") + whole if tag == "nary" else whole


def _delimited(element: Any, parts: list[str]) -> Iterator[str]:
    yield _character(element, "begChr", "(")
    yield _character(element, "sepChr", "|").join(parts)
    yield _character(element, "endChr", ")")


def _character(element: Any, kind: str, default: str) -> str:
    """That of the element's properties, which stand first; "" where they say that there is none."""
    found = element.find(f"{{*}}{_tag(element)}Pr/{{*}}{kind}")
    return default if found is None else next(iter(found.attrib.values()), "")[:1]


def _as_one(text: str) -> str:
    return text if len(text) == 1 or text.isalnum() else f"({text})"


def _tag(element: Any) -> str:
    """The local name; "" of a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _names(namespaces: tuple[str, ...], tags: str) -> frozenset[str]:
    return frozenset(f"{namespace} {tag}" for namespace in namespaces for tag in tags.split())


FIELD = _names(WORD, "fldChar")
TEXT = _names((*WORD, *MATH), "t") | _names(WORD, "sym")
EQUATION = _names(MATH, "oMath")
DRAWING = _names(WORD, "drawing")
OPENED = _names(WORD, "fldSimple bdo dir ruby rubyBase") | _names((VML,), "oval line arc curve polyline")
LEFT_OUT = _names(WORD, "fldData rt rubyPr")
RENAMED = {f"{word} {old}": f"{word} {new}" for word in WORD for old, new in (("cr", "br"), ("ptab", "tab"))}
ALTERNATIVES, CHOICE, FALLBACK = (f"{COMPATIBILITY} {tag}" for tag in ("AlternateContent", "Choice", "Fallback"))
ODD = OPENED | EQUATION | RENAMED.keys() | _names(WORD, "txbxContent") | {ALTERNATIVES}


@dataclass
class PartSurvey:
    """What a part of the archive holds. One that is no XML holds nothing that matters, and is left to the library."""

    most_fields: int = 0  # that are open at a time
    odd: bool = False  # to be written anew
    # Of each AlternateContent, in order: whether its Fallback holds text. The first stands for those outside of any.
    spoken: list[bool] = field(default_factory=lambda: [False])
    _fields: int = 0
    _alternatives: list[int] = field(default_factory=lambda: [0])
    _fallbacks: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, part: IO[bytes]) -> PartSurvey:
        found, parser = cls(), expat.ParserCreate(namespace_separator=" ")
        parser.StartElementHandler, parser.EndElementHandler = found._start, found._end
        types: list[str] = []
        parser.StartDoctypeDeclHandler = lambda name, *_: types.append(name)
        try:
            parser.ParseFile(part)
        except expat.ExpatError:
            found.odd = False
        found.odd = found.odd and not types  # no office program writes entities
        return found

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self.odd = self.odd or name in ODD
        if name in FIELD:
            # mammoth takes either namespace here too, and the last where both are there.
            kinds = [value for key, value in attributes.items() if key in KINDS_OF_FIELD]
            self._fields = max(0, self._fields + {"begin": 1, "end": -1}.get(kinds[-1] if kinds else "", 0))
            self.most_fields = max(self.most_fields, self._fields)
        elif name in TEXT and self._fallbacks:
            self.spoken[self._fallbacks[-1]] = True
        elif name == ALTERNATIVES:
            self._alternatives.append(len(self.spoken))
            self.spoken.append(False)
        elif name == FALLBACK:
            self._fallbacks.append(self._alternatives[-1])

    def _end(self, name: str) -> None:
        if name == ALTERNATIVES:
            self._alternatives.pop()
        elif name == FALLBACK:
            inner = self._fallbacks.pop()
            if self._fallbacks and self.spoken[inner]:
                self.spoken[self._fallbacks[-1]] = True


def rewritten(part: IO[bytes], survey: PartSurvey) -> bytes:
    """The part without what the library does not know. `survey` is its own."""
    return _Rewriter(survey.spoken).read(part)


@dataclass
class _Alternatives:
    spoken: bool
    chosen: bool = False


class _Rewriter:
    """The events of a parser, written down again. All namespaces are declared at the root, under names of our own."""

    def __init__(self, spoken: list[bool]) -> None:
        self._spoken = iter(spoken[1:])
        self._alternatives: list[_Alternatives] = []
        self._prefixes = {XML: "xml"}
        self._out = BytesIO()
        self._root = ""
        self._closing: list[str] = []  # what the ends of the open elements are written as
        self._left_out = 0  # how deep in something that is
        self._drawings = 0
        self._depth = 0  # within an equation
        self._equation = TreeBuilder()

    def read(self, part: IO[bytes]) -> bytes:
        parser = expat.ParserCreate(namespace_separator=" ")
        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._data
        parser.ParseFile(part)
        declared = "".join(
            f" xmlns:{prefix}={quoteattr(namespace)}"
            for namespace, prefix in self._prefixes.items()
            if namespace != XML
        )
        return b"".join((f"<{self._root}{declared}>".encode(), self._out.getbuffer()))

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        spoken = name == ALTERNATIVES and next(self._spoken)
        if self._left_out:
            self._left_out += 1
        elif self._depth or name in EQUATION:
            self._depth += 1
            self._equation.start(_clark(name), {_clark(key): value for key, value in attributes.items()})
        elif not self._root:
            self._root = self._opening(name, attributes)
            self._closing.append(f"</{self._qualified(name)}>")
        elif self._is_left_out(name):
            self._left_out = 1
        elif name in DRAWING:
            self._drawings += 1
            self._write(f"{name.rpartition(' ')[0]} pict", {})
        elif name == ALTERNATIVES:
            self._alternatives.append(_Alternatives(spoken))
            self._closing.append("")
        elif self._is_opened(name):
            self._closing.append("")
        else:
            self._write(RENAMED.get(name, name), {} if name in RENAMED else attributes)

    def _end(self, name: str) -> None:
        if self._left_out:
            self._left_out -= 1
        elif self._depth:
            self._depth -= 1
            self._equation.end(_clark(name))
            if not self._depth:
                self._write_equation()
        else:
            self._drawings -= name in DRAWING and len(self._closing) > 1
            if name == ALTERNATIVES and self._alternatives:
                self._alternatives.pop()
            self._out.write(self._closing.pop().encode())

    def _data(self, text: str) -> None:
        if self._depth:
            self._equation.data(text)
        elif not self._left_out:
            self._out.write(_escaped(text))

    def _is_left_out(self, name: str) -> bool:
        """Of alternatives one is taken: the last if it holds text, since it is sure to be understood."""
        if name in (CHOICE, FALLBACK) and self._alternatives:
            content = self._alternatives[-1]
            if content.chosen or (name == CHOICE and content.spoken):
                return True
            content.chosen = True
        namespace, _, tag = name.rpartition(" ")
        return name in LEFT_OUT or (namespace in MATH and tag.endswith("Pr"))

    def _is_opened(self, name: str) -> bool:
        namespace = name.rpartition(" ")[0]
        return name in OPENED or namespace in (COMPATIBILITY, *MATH) or (self._drawings > 0 and namespace not in WORD)

    def _write(self, name: str, attributes: dict[str, str]) -> None:
        self._out.write(f"<{self._opening(name, attributes)}>".encode())
        self._closing.append(f"</{self._qualified(name)}>")

    def _write_equation(self) -> None:
        text = _escaped(equation(self._equation.close()))
        run, said = self._qualified(f"{WORD[0]} r"), self._qualified(f"{WORD[0]} t")
        self._out.write(b"<%s><%s>%s</%s></%s>" % (run.encode(), said.encode(), text, said.encode(), run.encode()))
        self._equation = TreeBuilder()

    def _opening(self, name: str, attributes: dict[str, str]) -> str:
        given = (f" {self._qualified(key)}={quoteattr(value)}" for key, value in attributes.items())
        return self._qualified(name) + "".join(given)

    def _qualified(self, name: str) -> str:
        namespace, _, tag = name.rpartition(" ")
        return f"{self._prefixes.setdefault(namespace, f'n{len(self._prefixes)}')}:{tag}" if namespace else tag


def _clark(name: str) -> str:
    namespace, _, tag = name.rpartition(" ")
    return f"{{{namespace}}}{tag}"


def _escaped(text: str) -> bytes:
    return escape(text, {"\r": "&#13;"}).encode()
