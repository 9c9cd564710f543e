"""What a request says to be linked: the `ragcache` entry of its kv_transfer_params, as JSON.

    {"segments": [{"kind": "system", "tokens": 41, "sha256": "…"},
                  {"kind": "chunk", "tokens": 187, "sha256": "…"},
                  {"kind": "text", "tokens": 23}],
     "linker": "auto"}

or, to capture the last segment behind stored variants of those before it,

    {"capture": {"segments": […], "keys": [{"system": "", "context": [], "chunk": "…", "history": ""}, …]}}

The keys say which variants are to be placed. The address of what is captured is made here, of the ids and of them. A
segment and a key may name a `border`; vLLM cannot tell who asks, so whoever serves clients of several checks it before.

or, to be told what became of an earlier request, which gave itself a `name` beside its segments (a stream has no place
for it): {"report": "…"}. It is told once, and of the latest alone.

The segments cut the prompt's token ids in order; a text at the end may leave its length out. The hash of each (see
`ragcache.types.ids_hash`) is compared with the ids that arrived: a prompt that was tokenised otherwise must not meet
another prompt's KV.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ragcache.address import BORDERS, MOST_CONTEXT, address_of, border_behind, is_border
from ragcache.errors import ConfigError, PromptError
from ragcache.linking import make_linker
from ragcache.linking.base import Linker
from ragcache.types import Chunk, Segment, System, Text, VariantKey, ids_hash

KEY = "ragcache"
KINDS: dict[str, type[Segment]] = {"system": System, "chunk": Chunk, "text": Text}
MOST_SEGMENTS = 1024  # each is hashed, looked up and judged: a prompt of one-token segments would hold up all others
MOST_CONTEXTS = MOST_CONTEXT**2  # chunks before captured ones, in all keys of a capture together
NAME = re.compile(r"[0-9a-f]{32}")
HASH = re.compile(r"[0-9a-f]{64}")  # what `ids_hash` and `history_of` make
UNSERVED = {"cacheblend": "its choice needs KV compared in the middle of a pass: use the torch engine for it"}


@dataclass(frozen=True)
class LinkRequest:
    """A prompt to be linked."""

    segments: tuple[Segment, ...]
    linker: Linker
    name: str = ""  # under which its report is asked for afterwards
    always: bool = False  # link whatever is cached, also where computing it would be sooner


@dataclass(frozen=True)
class CaptureRequest:
    """A prompt whose last segment is to be captured behind the variants of those before it."""

    segments: tuple[Segment, ...]
    keys: tuple[VariantKey, ...]  # one per segment: what to place, and last, what it will be
    exchange: str  # where in this process the variants change hands; "" is the store
    patient: bool = False  # nobody waits for it: what comes meanwhile should not wait for a step of it

    @property
    def tokens(self) -> int:
        return sum(len(segment) for segment in self.segments)


@dataclass(frozen=True)
class ReportRequest:
    """What became of an earlier request is to be told."""

    name: str


def link_params(segments: Sequence[Segment], linker: str, *, always: bool = False) -> dict[str, Any]:
    """kv_transfer_params of a request for these segments."""
    told = {"segments": [_told(segment) for segment in segments], "linker": linker}
    return {KEY: told | ({"always": True} if always else {})}


def named(params: dict[str, Any], name: str) -> dict[str, Any]:
    """The same of a request whose report is asked for afterwards."""
    return params | {KEY: params[KEY] | {"name": name}}


def report_params(name: str) -> dict[str, Any]:
    return {KEY: {"report": name}}


def chat_params(segments: Sequence[Segment], linker: str) -> dict[str, Any]:
    """The same for a chat: with the ids of its prompt, vLLM does not tokenise the messages. A chunk that is tokenised
    with its neighbours seldom has the ids that its KV was computed from.
    """
    return link_params(segments, linker) | {
        "prompt_token_ids": [token for segment in segments for token in segment.ids]
    }


def capture_params(
    segments: Sequence[Segment], keys: Sequence[VariantKey], exchange: str = "", patient: bool = False
) -> dict[str, Any]:
    named = [
        {"system": key.system, "context": list(key.context), "chunk": key.chunk, "history": key.history}
        | _bordered(key.border)
        for key in keys
    ]
    told = [_told(segment) for segment in segments]
    return {KEY: {"capture": {"segments": told, "keys": named, "exchange": exchange, "patient": patient}}}


def _bordered(border: str) -> dict[str, Any]:
    return {"border": border} if border else {}


def _told(segment: Segment) -> dict[str, Any]:
    kind = next(name for name, known in KINDS.items() if isinstance(segment, known))
    return {"kind": kind, "tokens": len(segment), "sha256": segment.hash} | _bordered(segment.border)


def read_request(
    params: dict[str, Any] | None,
    ids: Sequence[int],
    default: str,
    fingerprint: str,
    allow: Callable[[str], None] = lambda exchange: None,
) -> LinkRequest | CaptureRequest | ReportRequest | None:
    """None for a request that asks nothing of us. `default`: the linker of one that names none. `allow` raises where a
    capture that goes there is none: what is refused is not read.

    Raises PromptError or ConfigError for one that is malformed, or that does not fit the prompt.
    """
    if params is not None and not isinstance(params, dict):
        raise PromptError(f"kv_transfer_params is {shown(params)}: give an object")
    asked = (params or {}).get(KEY)
    if asked is None:
        return None
    if not isinstance(asked, dict):
        raise PromptError(f"kv_transfer_params[{KEY!r}] is {shown(asked)}: give an object with a list of segments")
    if "capture" in asked:
        _only(asked, "", "capture")
        return _capture(asked["capture"], ids, fingerprint, allow)
    if "report" in asked:
        _only(asked, "", "report")
        return ReportRequest(_name(asked["report"]))
    if not isinstance(asked.get("segments"), list):
        raise PromptError(f"segments is {shown(asked.get('segments'))}: give a list of segments")
    _only(asked, "", "segments", "linker", "name", "always")
    linker = asked.get("linker", default)
    if not isinstance(linker, str):
        raise PromptError(f"linker is {shown(linker)}: give name or name:key=value,key=value as a string")
    name, always = _name(asked["name"]) if "name" in asked else "", asked.get("always", False)
    if not isinstance(always, bool):
        raise PromptError(f"always is {shown(always)}: choose true or false")
    return LinkRequest(_cut(asked["segments"], ids), check_linker(make_linker(linker)), name, always)


def _name(told: object) -> str:
    """Nobody guesses another's."""
    if isinstance(told, str) and NAME.fullmatch(told):
        return told
    raise PromptError(f"a request is named {shown(told)}: give 32 random digits, of 0-9 and a-f")


def shown(value: object) -> str:
    """A value of a request in a message. Whole, it may be as long and as deep as the client likes."""
    if isinstance(value, str):
        return f"{value[:40]!r}…" if len(value) > 40 else repr(value)
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length():,} bits"
    if value is None or isinstance(value, int | float):
        return repr(value)
    size = f" of {len(value):,}" if isinstance(value, list | dict) else ""
    return f"a {type(value).__name__}{size}"


def _only(told: dict[Any, Any], where: str, *known: str) -> None:
    unknown = ", ".join(islice((shown(name) for name in told if name not in known), 4))
    if unknown:
        raise PromptError(f"kv_transfer_params[{KEY!r}]{where} has unknown keys {unknown}: use {', '.join(known)}")


def check_linker(linker: Linker) -> Linker:
    """Raises ConfigError for one that does not run inside vLLM."""
    if linker.name in UNSERVED:
        raise ConfigError(f"linker {linker.name!r} does not run inside vLLM: {UNSERVED[linker.name]}")
    return linker


def _capture(asked: object, ids: Sequence[int], fingerprint: str, allow: Callable[[str], None]) -> CaptureRequest:
    if not isinstance(asked, dict):
        raise PromptError(f"capture is {shown(asked)}: give an object with segments and keys")
    _only(asked, "['capture']", "segments", "keys", "exchange", "patient")
    told, keyed = asked.get("segments"), asked.get("keys")
    exchange, patient = asked.get("exchange", ""), asked.get("patient", False)
    if not isinstance(told, list) or not isinstance(keyed, list) or not told:
        raise PromptError(f"kv_transfer_params[{KEY!r}] captures nothing: give segments, and a key for each")
    if len(keyed) != len(told):
        raise PromptError(f"{len(keyed):,} keys for the {len(told):,} segments of a capture: name one per segment")
    if not isinstance(exchange, str):
        raise PromptError(f"exchange is {shown(exchange)}: leave it out")
    if not isinstance(patient, bool):
        raise PromptError(f"patient is {shown(patient)}: choose true or false")
    allow(exchange)
    segments = _cut(told, ids)
    if sum(map(_contexts, keyed)) > MOST_CONTEXTS:
        raise PromptError(f"the keys name more than {MOST_CONTEXTS:,} context chunks: capture behind fewer")
    named = [_key(one, fingerprint, place) for place, one in enumerate(keyed)]
    if [type(segment) for segment in segments] != [System, *[Chunk] * (len(segments) - 1)]:
        raise PromptError("the segments of a capture are one of the kind system, then chunks: name them so")
    if [border_behind(segments[0].border, segment) for segment in segments] != [key.border for key in named]:
        raise PromptError("a segment of the capture has another border than its key: name the same")
    before = [(key, segment.ids) for key, segment in zip(named[:-1], segments[:-1], strict=True)]
    address = address_of(fingerprint, before, segments[-1])
    if named[-1] != address:
        raise PromptError("a capture's last key does not name what stands before it: its entry would be wrong")
    return CaptureRequest(
        segments, (*named[:-1], address), exchange, patient and exchange != ""
    )  # others would hold their rooms


def _contexts(told: object) -> int:
    context = told.get("context") if isinstance(told, dict) else None
    return len(context) if isinstance(context, list) else 0


def _key(told: object, fingerprint: str, place: int) -> VariantKey:
    """As it was named; whether that is true, `address_of` decides. Names that are no hashes could be read as others."""
    if isinstance(told, dict):
        _only(told, f"['capture']['keys'][{place}]", "system", "context", "chunk", "history", "border")
        context, border = told.get("context"), told.get("border", "")
        system, chunk, history = (told.get(name) for name in ("system", "chunk", "history"))
        if not isinstance(context, list) or len(context) > MOST_CONTEXT:
            context = [None]
        hashes = all(map(_is_hash, (chunk, *context))) and all(one == "" or _is_hash(one) for one in (system, history))
        if hashes and is_border(border):
            return VariantKey(fingerprint, str(system), tuple(context), str(chunk), str(history), str(border))
    raise PromptError(f"key {place} is {shown(told)}: give system, context, chunk and history, as capture_params does")


def _is_hash(name: object) -> bool:
    return isinstance(name, str) and HASH.fullmatch(name) is not None


def _cut(told: list[Any], ids: Sequence[int]) -> tuple[Segment, ...]:
    if len(told) > len(ids):  # each has a token at least
        raise PromptError(f"there are {len(told):,} segments, and {len(ids)} tokens in the prompt: cut the same ids")
    if len(told) > MOST_SEGMENTS:
        raise PromptError(f"there are {len(told):,} segments: cut the prompt into {MOST_SEGMENTS:,} at most")
    segments: list[Segment] = []
    start = 0
    for place, one in enumerate(told):
        kind, tokens = _kind(one), one.get("tokens") if isinstance(one, dict) else None
        if tokens is None and kind is Text and place == len(told) - 1:
            tokens = len(ids) - start
        if isinstance(one, dict):
            _only(one, f" segment {place}", "kind", "tokens", "sha256", "border")
        if kind is None or type(tokens) is not int or tokens < 1:
            raise PromptError(
                f"segment {place} is {_told_of(one)}: give kind ({', '.join(KINDS)}) and tokens (at least 1)"
            )
        if tokens > len(ids) - start:
            raise PromptError(
                f"segment {place} has {shown(tokens)} tokens and begins at {start} of {len(ids)}: cut the same ids"
            )
        border = one.get("border", "")
        if not is_border(border):
            raise PromptError(f"segment {place} has the border {shown(border)}: {BORDERS}")
        segment = kind(tuple(ids[start : start + tokens]), border)
        if kind is not Text and one.get("sha256") != ids_hash(segment.ids):
            raise PromptError(
                f"segment {place} ({one['kind']}): the sha256 of its {tokens} ids is not {shown(one.get('sha256'))}"
            )
        segments.append(segment)
        start += tokens
    if start != len(ids):
        raise PromptError(f"the segments have {start} tokens, the prompt has {len(ids)}: cut the same ids")
    return tuple(segments)


def _told_of(one: object) -> str:
    return f"{shown(one.get('kind'))} of {shown(one.get('tokens'))} tokens" if isinstance(one, dict) else shown(one)


def _kind(told: object) -> type[Segment] | None:
    name = told.get("kind") if isinstance(told, dict) else None
    return KINDS.get(name) if isinstance(name, str) else None
