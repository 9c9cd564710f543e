"""What a setting says of a splitter: `name`, or `name:key=value,key="a, b"` with values as JSON writes them.

A value that is no JSON is the text up to the next comma: `granularity=paragraph`.
"""

from __future__ import annotations

import json
import re

from ragcache.errors import RagcacheError

Value = bool | int | float | str | list[object] | dict[str, object] | None

LONGEST = 1000  # characters: a collection keeps them
KEY = re.compile(r"\s*([A-Za-z_]\w*)\s*=\s*")
END = re.compile(r"\s*(?=,|$)")
_JSON = json.JSONDecoder()


class SplitterError(RagcacheError, ValueError):
    """A setting that no text can be split with."""

    status = 400


def parse_spec(spec: str) -> tuple[str, dict[str, Value]]:
    """The name and the settings. Raises SplitterError for what is written in another way."""
    if len(spec) > LONGEST:
        raise SplitterError(f"splitter {spec[:40]!r}… has {len(spec):,} characters: use at most {LONGEST:,}")
    if not spec.isprintable():
        raise SplitterError(f"splitter {spec!r} holds characters that cannot be printed: write others as \\uXXXX")
    name, colon, rest = spec.partition(":")
    settings: dict[str, Value] = {}
    place = 0
    while colon and place <= len(rest):
        found = KEY.match(rest, place)
        stop = found.end() if found else place
        value, end = _value(rest, stop)
        if found is None or stop == end:
            raise SplitterError(f"splitter {spec!r}: {rest[place:end]!r} is no setting; write name:key=value,key=value")
        if found[1] in settings:
            raise SplitterError(f"splitter {spec!r}: setting {found[1]!r} is given twice; give it once")
        settings[found[1]] = value
        place = end + 1
    return name.strip(), settings


def is_import_path(name: str) -> bool:
    """Whether it names a class of some module, and none of our splitters."""
    return "." in name


def written(value: Value) -> str:
    """As a setting writes it."""
    return value if isinstance(value, str) else json.dumps(value)


def _value(text: str, start: int) -> tuple[Value, int]:
    """With the place of the comma behind it, or the end."""
    try:
        value, stop = _JSON.raw_decode(text, start)
        if end := END.match(text, stop):
            return value, end.end()
    except (ValueError, RecursionError):
        pass  # no JSON
    comma = text.find(",", start)
    stop = comma if comma >= 0 else len(text)
    return text[start:stop].strip(), stop
