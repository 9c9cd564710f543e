"""JSON and JSONL as items: a line `path: value` per value, a blank line between the records of a list."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from app.loaders.base import Parsed, SourceFile
from app.loaders.blocks import LONGEST_NAME
from app.loaders.encodings import decode

CONVERSATION = ("messages", "conversations", "conversation", "turns")
SPEAKER = ("role", "from", "speaker", "sender")
SAID = ("content", "value", "text", "message")
SAID_AT = ("timestamp", "time", "created_at")
TIME = re.compile(r"[^\[\]\n]{0,40}")  # what the splitter knows in front of a speaker
# What a turn may hold beside them, and is not told. With anything else it is some other record, which is told whole.
IDS = frozenset({"id", "uuid", "message_id", "parent_id"})


def load_json(source: SourceFile) -> Parsed:
    value = read_json(source, decode(source))
    turns = _conversation(value)
    kind, items = ("items", _records(value)) if turns is None else ("chat", turns)
    return Parsed("\n\n".join(source.bounded(items)), kind, source.name)


def load_jsonl(source: SourceFile) -> Parsed:
    """One value a line; blank lines are none. Lines that are all conversations make a chat."""
    text = decode(source)
    lines = ((number, found.group()) for number, found in enumerate(re.finditer(r"[^\n]*\n?", text), start=1))
    values = [read_json(source, line.rstrip(), f"line {number}, ") for number, line in lines if line.strip()]
    one = _conversation(values)
    several = [_conversation(value) for value in values] if one is None else [one]
    turns = [turn for conversation in several if conversation is not None for turn in conversation]
    kind, items = ("chat", turns) if turns and None not in several else ("items", map(_item, values))
    return Parsed("\n\n".join(source.bounded(items)), kind, source.name)


def _conversation(value: object) -> list[str] | None:
    """The turns of one, in the shapes that chat programs and training sets write, behind what else is told of it."""
    if isinstance(value, list):
        return _turns(value)
    if not isinstance(value, dict):
        return None
    known = ((key, turns) for key in CONVERSATION if (turns := _turns(value.get(key))) is not None)
    name, turns = next(known, ("", None))
    rest = {key: member for key, member in value.items() if key != name and not _is_id(key, member)}
    return None if turns is None else [*filter(None, _records(rest)), *turns]


def _turns(value: object) -> list[str] | None:
    if not isinstance(value, list) or not value:
        return None
    turns = [_turn(item) for item in value]
    known = [turn for turn in turns if turn is not None]
    return known if len(known) == len(turns) else None


def _turn(item: object) -> str | None:
    if not isinstance(item, dict):
        return None
    who, what, when = (next((key for key in names if key in item), "") for names in (SPEAKER, SAID, SAID_AT))
    beside = (member for key, member in item.items() if key not in (who, what, when) and not _is_id(key, member))
    if any(map(_item, beside)):
        return None
    speaker, said, time = item.get(who), item.get(what), item.get(when) or ""
    if not (isinstance(speaker, str) and isinstance(said, str) and isinstance(time, str) and TIME.fullmatch(time)):
        return None
    return f"[{time}] {speaker}: {said}" if time else f"{speaker}: {said}"


def _is_id(key: str, value: object) -> bool:
    return key in IDS and not isinstance(value, dict | list)


def read_json(source: SourceFile, text: str, where: str = "") -> object:
    """Its value; numbers stay as they are written. Raises LoadError."""
    try:
        value: object = json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_object)
    except json.JSONDecodeError as error:
        place = f"{where}column {error.colno}" if where else f"line {error.lineno}, column {error.colno}"
        raise source.error(f"is not valid JSON at {place} ({error.msg}): mend it there") from error
    except RecursionError as error:
        raise source.error(f"{where}nests its values too deep to be read: flatten it") from error
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """With all values of a name that stands in it several times."""
    made = dict(pairs)
    if len(made) == len(pairs):
        return made
    values: dict[str, list[object]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return {name: several if len(several) > 1 else several[0] for name, several in values.items()}


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
