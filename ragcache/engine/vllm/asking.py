"""What a request says to be linked: the `ragcache` entry of its kv_transfer_params, as JSON.

    {"segments": [{"kind": "system", "tokens": 41, "sha256": "…"},
                  {"kind": "chunk", "tokens": 187, "sha256": "…"},
                  {"kind": "text", "tokens": 23}],
     "linker": "auto"}

or, to capture the last segment behind stored variants of those before it,

    {"capture": {"segments": […], "keys": [{"system": "", "context": [], "chunk": "…", "history": ""}, …]}}

The keys say which variants are to be placed. The address of what is captured is made here, of the ids and of them.

The segments cut the prompt's token ids in order; a text at the end may leave its length out. The hash of each (see
`ragcache.types.ids_hash`) is compared with the ids that arrived: a prompt that was tokenised otherwise must not meet
another prompt's KV.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ragcache.address import address_of
from ragcache.errors import ConfigError, PromptError
from ragcache.linking import make_linker
from ragcache.linking.base import Linker
from ragcache.types import Chunk, Segment, System, Text, VariantKey, ids_hash

KEY = "ragcache"
KINDS: dict[str, type[Segment]] = {"system": System, "chunk": Chunk, "text": Text}
UNSERVED = {"cacheblend": "its choice needs KV compared in the middle of a pass: use the torch engine for it"}


@dataclass(frozen=True)
class LinkAsk:
    """A prompt to be linked."""

    segments: tuple[Segment, ...]
    linker: Linker


@dataclass(frozen=True)
class CaptureAsk:
    """A prompt whose last segment is to be captured behind the variants of those before it."""

    segments: tuple[Segment, ...]
    keys: tuple[VariantKey, ...]  # one per segment: what to place, and last, what it will be
    desk: str  # where in this process the variants change hands; "" is the store


def link_params(segments: Sequence[Segment], linker: str) -> dict[str, Any]:
    """kv_transfer_params of a request for these segments."""
    return {KEY: {"segments": [_told(segment) for segment in segments], "linker": linker}}


def chat_params(segments: Sequence[Segment], linker: str) -> dict[str, Any]:
    """The same for a chat: with the ids of its prompt, vLLM does not tokenise the messages. A chunk that is tokenised
    with its neighbours seldom has the ids that its KV was computed from.
    """
    return link_params(segments, linker) | {
        "prompt_token_ids": [token for segment in segments for token in segment.ids]
    }


def capture_params(segments: Sequence[Segment], keys: Sequence[VariantKey], desk: str = "") -> dict[str, Any]:
    told = [
        {"system": key.system, "context": list(key.context), "chunk": key.chunk, "history": key.history} for key in keys
    ]
    return {KEY: {"capture": {"segments": [_told(segment) for segment in segments], "keys": told, "desk": desk}}}


def foreign_input(request: Any) -> str | None:
    """What of a request's KV its token ids do not tell, so that no address may be made of them; None for nothing."""
    if request.mm_features:
        return "it holds images, sounds or videos"
    if request.prompt_embeds is not None:
        return "it holds embeddings in place of tokens"
    if request.lora_request is not None:
        return "it asks for an adapter"
    if request.resumable:
        return "its prompt goes on after it was planned"
    return None


def _told(segment: Segment) -> dict[str, Any]:
    kind = next(name for name, known in KINDS.items() if isinstance(segment, known))
    return {"kind": kind, "tokens": len(segment), "sha256": segment.hash}


def read_ask(
    params: dict[str, Any] | None, ids: Sequence[int], default: str, fingerprint: str
) -> LinkAsk | CaptureAsk | None:
    """None for a request that asks nothing of us. `default`: the linker of one that names none.

    Raises PromptError or ConfigError for one that is malformed, or that does not fit the prompt.
    """
    asked = (params or {}).get(KEY)
    if asked is None:
        return None
    if isinstance(asked, dict) and isinstance(asked.get("capture"), dict):
        return _capture(asked["capture"], ids, fingerprint)
    if not isinstance(asked, dict) or not isinstance(asked.get("segments"), list):
        raise PromptError(f"kv_transfer_params[{KEY!r}] is {asked!r:.80}: give an object with a list of segments")
    unknown = set(asked) - {"segments", "linker"}
    if unknown:
        raise PromptError(f"kv_transfer_params[{KEY!r}] has unknown keys {sorted(unknown)}: use segments and linker")
    return LinkAsk(_cut(asked["segments"], ids), check_linker(str(asked.get("linker", default))))


def check_linker(spec: str) -> Linker:
    """Raises ConfigError for one that is unknown, or that does not run inside vLLM."""
    linker = make_linker(spec)
    if linker.name in UNSERVED:
        raise ConfigError(f"linker {linker.name!r} does not run inside vLLM: {UNSERVED[linker.name]}")
    return linker


def _capture(asked: dict[str, Any], ids: Sequence[int], fingerprint: str) -> CaptureAsk:
    told, keyed = asked.get("segments"), asked.get("keys")
    if not isinstance(told, list) or not isinstance(keyed, list) or not told:
        raise PromptError(f"kv_transfer_params[{KEY!r}] captures nothing: give segments, and a key for each")
    named = [_key(one, fingerprint, place) for place, one in enumerate(keyed)]
    segments = _cut(told, ids)
    if len(named) != len(segments):
        raise PromptError(f"{len(named)} keys for the {len(segments)} segments of a capture: name one per segment")
    if [type(segment) for segment in segments] != [System, *[Chunk] * (len(segments) - 1)]:
        raise PromptError("the segments of a capture are one of the kind system, then chunks: name them so")
    before = [(key, segment.ids) for key, segment in zip(named[:-1], segments[:-1], strict=True)]
    address = address_of(fingerprint, before, segments[-1])
    if named[-1] != address:
        raise PromptError("a capture's last key does not name what stands before it: its entry would be wrong")
    return CaptureAsk(segments, (*named[:-1], address), str(asked.get("desk", "")))


def _key(told: object, fingerprint: str, place: int) -> VariantKey:
    """As it was named; whether that is true, `address_of` decides. Names that are no hashes could be read as others."""
    if isinstance(told, dict) and isinstance(told.get("context"), list):
        system, chunk, history = (told.get(name, "?") for name in ("system", "chunk", "history"))
        context = told["context"]
        if all(map(_is_hash, (*context, chunk))) and all(name == "" or _is_hash(name) for name in (system, history)):
            return VariantKey(fingerprint, system, tuple(context), chunk, history)
    raise PromptError(
        f"key {place} is {told!r:.80}: give the hashes system, context, chunk and history, as capture_params does"
    )


def _is_hash(name: object) -> bool:
    return isinstance(name, str) and re.fullmatch("[0-9a-f]{64}", name) is not None


def _cut(told: list[Any], ids: Sequence[int]) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    start = 0
    for place, one in enumerate(told):
        kind, tokens = _kind(one), one.get("tokens") if isinstance(one, dict) else None
        if tokens is None and kind is Text and place == len(told) - 1:
            tokens = len(ids) - start
        if kind is None or type(tokens) is not int or tokens < 1:
            raise PromptError(f"segment {place} is {one!r:.80}: give kind ({', '.join(KINDS)}) and tokens (at least 1)")
        segment = kind(tuple(ids[start : start + tokens]))
        if kind is not Text and one.get("sha256") != ids_hash(segment.ids):
            named = f"{one.get('sha256')!r:.80}"
            raise PromptError(f"segment {place} ({one['kind']}): the sha256 of its {tokens} ids is not {named}")
        segments.append(segment)
        start += tokens
    if start != len(ids):
        raise PromptError(f"the segments have {start} tokens, the prompt has {len(ids)}: cut the same ids")
    return tuple(segments)


def _kind(told: object) -> type[Segment] | None:
    name = told.get("kind") if isinstance(told, dict) else None
    return KINDS.get(name) if isinstance(name, str) else None
