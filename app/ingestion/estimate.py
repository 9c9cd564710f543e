"""How much an ingest will be: chunks, tokens, KV on the disk, and time, before any of it is computed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch

from app.library import Library
from app.library.catalog import Catalog
from app.library.catalog.records import Collection
from app.library.order import RUN, SHORT, opening_chunks
from app.loaders.base import Parsed
from app.models import Models
from app.models.devices import resolve_device, resolve_dtype
from app.models.folders import resolve_model
from app.prompt import PromptTemplate
from app.settings import Settings
from ragcache.errors import PromptError
from ragcache.kvgen import LEAD_TOKENS
from ragcache.store.codec import KVShape
from ragcache.store.entry import entry_nbytes

# Characters that a rehearsal cuts; what goes beyond is reckoned by what these came to, since cutting takes its time.
# about 100,000.
CUT = 300_000
CHUNK = 160  # tokens of a typical one
RUNS = 5  # of a collection, to take the rate from


@dataclass(frozen=True)
class Size:
    """Of a document, or of several."""

    chunks: float = 0
    tokens: float = 0
    kv_variants: float = 0
    kv_bytes: float = 0  # on the disk

    def __add__(self, other: Size) -> Size:
        return self.times(1, other)

    def times(self, factor: float, more: Size | None = None) -> Size:
        more = more or Size()
        return Size(*(getattr(self, name) * factor + getattr(more, name) for name in self.__dataclass_fields__))


class IngestEstimate:
    """Grows document by document. Loads the tokenizer and what finds boundaries, and no other model."""

    def __init__(self, library: Library, models: Models, collection: Collection | None, splitter: str | None, kv: bool):
        self._library, self._models = library, models
        self._splitter = library.splitter(collection, splitter)
        self._kv = KvSize(library.settings, models.template) if kv else None
        self._characters = 0  # that were cut
        self._cut = Size()  # of them
        self.size = Size()

    @property
    def exact(self) -> bool:
        """Whether all texts were cut."""
        return self.size == self._cut

    def add(self, parsed: Parsed) -> Size:
        """What the document comes to."""
        if self._characters and self._characters + len(parsed.text) > CUT:
            found = self._cut.times(len(parsed.text) / self._characters)
        else:
            found = self._of(parsed)
        self.size += found
        return found

    def _of(self, parsed: Parsed) -> Size:
        part = parsed.text[:CUT]
        share = len(parsed.text) / max(1, len(part))
        texts = [part[piece.start : piece.end] for piece in self._splitter.split(part, parsed.kind)]
        cut = self._sized(texts, share)
        self._characters += len(part)
        self._cut += cut
        return cut.times(share) if share > 1 else cut

    def _sized(self, texts: Sequence[str], share: float) -> Size:
        template = self._models.template
        size = Size(len(texts), sum(map(template.count, texts)))
        return size if self._kv is None else size + self._kv.of(chunk_lengths(template, texts), share)


class KvSize:
    """How large the files of KV will be, by the lengths of chunks. Loads the tokenizer alone."""

    def __init__(self, settings: Settings, template: PromptTemplate):
        self._settings = settings
        self._shape = read_shape(settings)
        self._system = len(template.system())

    def of(self, lengths: Sequence[int], share: float = 1.0) -> Size:
        """Of a document, or of its beginning where the whole is so many times as long."""
        whole = len(lengths) * share
        run = RUN if whole <= SHORT else whole
        again = 1 + (opening_chunks(round(whole)) / run if self._settings.context_chunks and lengths else 0)
        entries = self._entries(lengths, share)
        return Size(kv_variants=len(entries) * again, kv_bytes=sum(entries) * again)

    def _entries(self, lengths: Sequence[int], share: float) -> list[int]:
        """Of a document's chunks, and of their lead variants where it will have those."""
        width = self._settings.context_chunks
        found = [
            self._nbytes(own, lengths[max(0, place - width) : place], seen=place if width else 0)
            for place, own in enumerate(lengths)
        ]
        if sum(lengths) * share >= LEAD_TOKENS and width:
            found += [self._nbytes(own, ()) for own in lengths[1:]]
        return found

    def _nbytes(self, tokens: int, context: Sequence[int], *, seen: int = 0) -> int:
        """0 where the model's configuration does not say it."""
        if self._shape is None:
            return 0
        return entry_nbytes(replace(self._shape, tokens=tokens), self._settings.codec, self._system, context, seen=seen)


def chunk_lengths(template: PromptTemplate, texts: Iterable[str]) -> list[int]:
    """As they stand in a prompt, without blank ones, which have no KV."""
    lengths = []
    for text in texts:
        with suppress(PromptError):
            lengths.append(len(template.chunk(text)))
    return lengths


def read_shape(settings: Settings) -> KVShape | None:
    """Of one token's KV, from the model's configuration alone; None where that does not say it plainly.

    Raises ModelError and ConfigError.
    """
    try:
        config = json.loads(
            Path(resolve_model(settings.model, settings.cache_dir), "config.json").read_text(encoding="utf-8")
        )
        return shape_of(config, resolve_dtype(settings, resolve_device(settings)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def shape_of(config: Mapping[str, Any], dtype: torch.dtype) -> KVShape:
    """Of one token's KV. Raises ValueError, KeyError, TypeError and AttributeError where it does not say it."""
    layers, heads = int(config["num_hidden_layers"]), int(config["num_attention_heads"])
    width = int(config.get("head_dim") or int(config["hidden_size"]) // heads)
    return KVShape(layers, int(config.get("num_key_value_heads") or heads), 1, width, dtype)


def bytes_per_token(settings: Settings) -> float:
    """Of KV on the disk, with what a file has beside it. 0 where the model's configuration does not say it."""
    shape = read_shape(settings)
    return 0.0 if shape is None else nbytes_per_token(shape, settings.codec)


def nbytes_per_token(shape: KVShape, codec: str) -> float:
    """Of a typical chunk amid a document."""
    return entry_nbytes(replace(shape, tokens=CHUNK), codec, CHUNK, (CHUNK,) * 3, seen=4) / CHUNK


def tokens_per_second(catalog: Catalog, kv: bool) -> float | None:
    """As the newest ingests went that computed KV, or that did not. None where there were none."""
    found = []
    for collection in catalog.collections.all():
        for run in catalog.runs.newest(collection, RUNS):
            tokens = run.counts.get("tokens", 0)
            if run.finished is not None and tokens and bool(run.counts.get("kv_variants")) == kv:
                seconds = (run.finished - run.started).total_seconds()
                found.append((run.finished, tokens, seconds))
    newest = sorted(found)[-RUNS:]
    if not newest:
        return None
    *_, tokens = accumulate(tokens for _, tokens, _ in newest)
    return tokens / max(1e-3, sum(seconds for _, _, seconds in newest))
