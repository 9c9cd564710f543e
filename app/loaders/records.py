"""JSON and JSONL as items: a line `path: value` per value, a blank line between the records of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from app.loaders.base import Parsed, Source
from app.loaders.chat import turns_of
from app.loaders.encodings import decode
from app.loaders.rows import LONGEST_NAME


def load_json(source: Source) -> Parsed:
    value = _read(source, decode(source), "")
    turns = turns_of(value)
    if turns is not None:
        return Parsed("\n\n".join(turns), "chat", source.name)
    return Parsed("\n\n".join(source.bounded(_records(value))), "items", source.name)


def load_jsonl(source: Source) -> Parsed:
    """One value a line; blank lines are none. Lines that are all conversations make a chat."""
    text = decode(source)
    lines = ((number, found.group()) for number, found in enumerate(re.finditer(r"[^\n]*\n?", text), start=1))
    values = [_read(source, line.rstrip(), f"line {number}, ") for number, line in lines if line.strip()]
    one = turns_of(values)
    several = [turns_of(value) for value in values] if one is None else [one]
    turns = [turn for conversation in several for turn in conversation or ()]
    if turns and None not in several:
        return Parsed("\n\n".join(turns), "chat", source.name)
    return Parsed("\n\n".join(source.bounded(map(_item, values))), "items", source.name)


def _read(source: Source, text: str, where: str) -> object:
    """Numbers stay as they are written."""
    try:
        value: object = json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except json.JSONDecodeError as error:
        place = f"{where}column {error.colno}" if where else f"line {error.lineno}, column {error.colno}"
        raise source.error(f"is not valid JSON at {place} ({error.msg}): mend it there") from error
    except RecursionError as error:
        raise source.error(f"{where}nests its values too deep to be read: flatten it") from error
    return value


def _records(value: object) -> Iterator[str]:
    """The members of a list, and of an object those that are lists; what else an object holds is one record."""
    if isinstance(value, list):
        yield from (_item(member) for member in value)
    elif isinstance(value, dict):
        lists = {key: member for key, member in value.items() if _is_list_of_records(member)}
        rest = {key: member for key, member in value.items() if key not in lists}
        if rest:
            yield _item(rest)
        for key, members in lists.items():
            yield from (_item(member, key) for member in members)
    else:
        yield _item(value)


def _is_list_of_records(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(member, dict) for member in value)


def _item(value: object, path: str = "") -> str:
    """All values below one, depth first; without recursion, because files nest deeper than Python may call."""
    lines = []
    stack = [(path, value)]
    while stack:
        name, found = stack.pop()
        if isinstance(found, dict):
            stack.extend((_joined(name, key), inner) for key, inner in reversed(found.items()))
        elif isinstance(found, list) and any(isinstance(inner, dict | list) for inner in found):
            stack.extend((name, inner) for inner in reversed(found))
        else:
            shown = _scalar(found)
            if shown:
                lines.append(f"{name}: {shown}" if name else shown)
    return "\n".join(lines)


def _joined(path: str, key: str) -> str:
    """Cut at its front, because it stands before every value below it."""
    return (f"{path}.{key}" if path else key)[-LONGEST_NAME:]


def _scalar(value: object) -> str:
    """A value as text; null and empty ones have none."""
    if isinstance(value, list):
        return ", ".join(shown for shown in map(_scalar, value) if shown)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value).strip()
