"""Which chunks an answer is to be made from."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

from app.answering import Retrieved, retrieved
from app.answering.question_options import Asked
from app.answering.selection import Limits, beside, places_beside, select
from app.errors import Conflict, NotFound
from app.library import Library
from app.library.catalog.records import Collection, Found
from app.library.fusion import search_options
from app.models import Models
from app.settings import RetrievalMode

KEYWORD = "keyword"  # a search that needs no embedder


@dataclass(frozen=True)
class Searched:
    """What a question found."""

    chunks: list[Retrieved]
    notes: tuple[str, ...]  # what its user should know
    seconds: Mapping[str, float]  # of its stages but the search itself


class CollectionSearch:
    """Threads may share it."""

    def __init__(self, library: Library, models: Models):
        self.library, self.models, self.settings = library, models, library.settings
        self._checked: set[str] = set()  # uids of collections that our embedder made the vectors of

    def collection(self, name: str | None, collection_id: int | None = None) -> Collection:
        """Raises CatalogError for one that is not there, is empty, or was embedded by another model."""
        wanted, catalog = name or self.settings.collection, self.library.catalog
        if collection_id is not None:
            if (known := catalog.collections.with_id(collection_id)) is None:
                raise NotFound("the collection that was asked has been deleted meanwhile")
            return self._checked_one(known)
        collection = catalog.collections.find(wanted)
        if collection is None:
            names = ", ".join(one.name for one in catalog.collections.all()) or "none yet"
            raise NotFound(f"no collection {wanted!r}; there are: {names}. {_how_to_fill(wanted)} makes it")
        return self._checked_one(collection)

    def _checked_one(self, collection: Collection) -> Collection:
        if collection.uid not in self._checked:  # an embedding anew changes the uid
            self.library.check_embedder(collection)
            self._check_filled(collection)
            self._checked.add(collection.uid)
        return collection

    def _check_filled(self, collection: Collection) -> None:
        """Raises Conflict where nothing can be found."""
        if not self.library.catalog.source(collection).position().live:
            name = collection.name
            raise Conflict(f"collection {name!r} is empty: {_how_to_fill(name)} puts documents into it")

    def run(self, collection: Collection, query: str, asked: Asked) -> Searched:
        limits = Limits.of(asked, self.settings)
        if limits.tokens:
            limits = replace(limits, joins=self.models.template.joins)
        options = search_options(self.settings, collection, asked.mmr, asked.retrieval)
        seconds = dict[str, float]()
        live = cache(lambda: self.library.catalog.source(collection).position().live)
        with self.library.searching(collection) as searcher:
            # A cross-encoder takes long: it goes deeper once, whatever it finds there.
            for depth in islice(limits.depths(live), None if searcher.reranker is None else 2):
                found = searcher.search(query, depth, where=asked.where, options=options, seconds=seconds)
                hits = {hit.id: hit.score for hit in found}
                selection = select(self._rows(list(hits), limits.expected), limits)
                cut = not selection.ended and depth == len(hits) < live()
                if not cut:
                    break
        if not selection.chosen:
            self._check_filled(collection)  # it may have been emptied since it was last asked
            if asked.where and not len(self.library.catalog.source(collection).live_ids(asked.where)):
                raise NotFound(f"no chunk matches all of the filter {dict(asked.where)}: leave some of it out")
        chunks = [retrieved(one, hits[one.chunk.id]) for one in selection.chosen]
        if limits.neighbours:
            there = self.library.catalog.chunks.at(places_beside(selection.chosen, limits.neighbours))
            joined = beside(selection.chosen, there, limits)
            chunks += [retrieved(one, hits[hit.chunk.id], "neighbour") for one, hit in joined]
        return Searched(chunks, (*selection.notes, *((_unseen(depth),) if cut else ())), seconds)

    def _rows(self, ids: Sequence[int], first: int) -> Iterator[Found]:
        """In their order. Mostly the first so many are enough, and reading rows takes time."""
        for part in (ids[:first], ids[first:]):
            if part:
                yield from self.library.catalog.chunks.found(part)

    def fits(self, query: str, mode: RetrievalMode | None = None) -> bool:
        """Whether the search reads all of it at once; words take any length."""
        return (mode or self.settings.retrieval) == KEYWORD or self.models.embedder.whole_query(query)


def in_parts(limit: int) -> str:
    return f"the embedder reads {limit} tokens at once: this longer question was searched for in parts"


def _unseen(depth: int) -> str:
    return f"only the best {depth:,} hits were looked at: there may be more chunks"


def _how_to_fill(collection: str) -> str:
    return f"`ragcache ingest PATH -c {shlex.quote(collection)}`"
