"""What an ingest will take, in one line before it begins: reckoned from its first texts and the sizes of its files."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.client.amounts import count, size
from app.ingestion.room import AGAIN, TYPICAL, KvRoom, per_token
from app.ingestion.survey import Pending
from app.ingestion.worker import Outcome, ReadFile
from app.library import Library
from app.library.catalog.records import Collection
from app.models import Models

if TYPE_CHECKING:
    from app.ingestion.estimate import Size

FILES, CHARACTERS = 16, 400_000  # that are looked at: they are read once, and wait for it
SAMPLE = 20_000  # characters of each whose tokens are counted

Read = tuple[Pending, Outcome]


class Outlook:
    """`told` is "" where nothing of what was looked at is a document, and nothing is left."""

    def __init__(self, library: Library, models: Models, collection: Collection, room: KvRoom):
        self._library, self._models, self._collection, self._room = library, models, collection, room

    def estimate_line(self, first: Sequence[Read], rest: Sequence[Pending]) -> str:
        """Of the files that were looked at, and of those that were not."""
        rest = [file for file in rest if file.readable]
        documents = len(rest) + sum(isinstance(outcome, ReadFile) for _, outcome in first)
        if documents == 0:
            return ""
        tokens, per_byte = self._tokens(first)
        for file in rest:
            tokens += file.size * per_byte.get(_kind(file), 1 / per_token(file.source))
        return estimate_line(self._room, documents, self._size(tokens, documents), about=True)

    def _tokens(self, first: Sequence[Read]) -> tuple[float, dict[str, float]]:
        """Of these files, and in a byte of their kinds."""
        tokens, nbytes = Counter[str](), Counter[str]()
        found = 0.0
        for file, outcome in first:
            if isinstance(outcome, ReadFile):
                sample = outcome.parsed.text[:SAMPLE]
                of_text = self._models.template.count(sample) * len(outcome.parsed.text) / max(1, len(sample))
                found += of_text
                tokens[_kind(file)] += round(of_text)
                nbytes[_kind(file)] += max(1, file.size)
        return found, {kind: tokens[kind] / nbytes[kind] for kind in nbytes}

    def _size(self, tokens: float, documents: int) -> Size:
        """With chunks like those of the collection, where there are any; each document has one at least."""
        from app.ingestion.estimate import KvSize, Size  # it imports torch

        totals = self._library.catalog.collections.totals(self._collection)
        settings = self._library.settings
        typical = totals.tokens / totals.chunks if totals.chunks else settings.chunk_tokens * TYPICAL
        chunks = max(float(documents), tokens / max(1.0, typical))
        one = round(tokens / chunks) + self._models.template.joins
        per_chunk = KvSize(settings, self._models.template).of([one] * 8).kv_bytes / 8 / AGAIN
        return Size(chunks, tokens, chunks * AGAIN, chunks * per_chunk * AGAIN)


def looked_at(outcomes: Iterator[Read]) -> tuple[deque[Read], Iterator[Read]]:
    """The first of them, and all, which leave the first as they are taken: nobody holds their texts any longer."""
    first = deque[Read]()
    characters = 0
    for one in outcomes:
        first.append(one)
        characters += len(one[1].parsed.text) if isinstance(one[1], ReadFile) else 0
        if len(first) >= FILES or characters >= CHARACTERS:
            break
    return first, _taken(first, outcomes)


def _taken(first: deque[Read], rest: Iterator[Read]) -> Iterator[Read]:
    while first:
        yield first.popleft()
    yield from rest


def estimate_line(room: KvRoom, documents: int, reckoned: Size, *, about: bool) -> str:
    chunks, tokens = count(round(reckoned.chunks), "chunk"), count(round(reckoned.tokens), "token")
    kv = _kv(room, round(reckoned.kv_bytes))
    return f"{count(documents, 'document')}, {'about ' if about else ''}{chunks}, {tokens}, {kv}"


def _kv(room: KvRoom, nbytes: int) -> str:
    if room.mode == "off":
        return "no KV (RAGCACHE_KV is off)"
    if room.mode == "on-use":
        why = "RAGCACHE_KV is on-use" if room.asked == "on-use" else "RAGCACHE_DISK_BYTES is 0, so it stays in RAM"
        return f"KV on use: answers compute that of the chunks that they find ({why})"
    if nbytes == 0:
        how = "all of it" if room.mode == "eager" else "as far as it fits"
        return f"KV of unknown size, which the model's configuration does not tell, computed now, {how}"
    if room.mode == "eager":
        return f"{size(nbytes)} of KV, computed now (RAGCACHE_KV is eager)"
    left = room.left()
    if nbytes <= left:
        return f"{size(nbytes)} of KV, computed now (auto: {size(left)} are left for it)"
    now = f"of which {size(left)} fit and are computed now, and the rest" if left > 0 else "which do not fit, and are"
    rest = "computed on use, as answers find the chunks"
    return f"{size(nbytes)} of KV, {now} {rest} (auto: {room.more()} to have more)"


def _kind(file: Pending) -> str:
    return Path(file.source).suffix.lower()
