"""A collection learns from its own texts how much meaning and words count in its search (retriever/balance.py).

It takes a sample of its chunks, and the vectors of their sentences, which are kept with them: nothing is embedded for
it while documents are ingested.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from app.library import Library
from app.library.catalog.records import Collection
from app.library.fusion import COLLECTION, SAMPLED, LearntFusion, is_due, learnt
from app.models import Models
from ragcache.errors import RagcacheError
from retriever import IntArray
from retriever.balance import Balance, Withheld, asking, balance, withheld
from retriever.searcher import LINEAR
from retriever.sentences import unpack

MOST_CHUNKS = 200  # of a sample
LOOKED_AT = 1000  # chunks for it: tables and lists have no sentences
_BATCH = 200
_SEED = 0  # the same chunks learn the same share
# What may go wrong in texts, vectors and databases that others have written. An ingest is done by then.
TROUBLE = (RagcacheError, ArithmeticError, LookupError, ValueError, RuntimeError, OSError, MemoryError)
log = logging.getLogger(__name__)


def learn_if_due(
    library: Library, models: Models, collection: Collection, *, wrote: bool = True, anew: bool = False
) -> None:
    """After an ingest that `wrote` chunks or none, or another change of the collection, whose lock the caller holds.
    What goes wrong is told to the log alone: chunks are found without it too. `anew`: the chunks have changed in a way
    that their number does not tell.
    """
    try:
        collection = library.catalog.collections.current(collection)
        source = library.catalog.source(collection)
        if is_due(collection, source.position().live, source.lost, wrote=wrote, anew=anew):
            _, found = learnt_from_texts(library, models, collection)
            kept = learnt(collection)
            if kept is not None and not anew and found.tells_less(kept):
                # It waits for as many new chunks again, else each ingest would take a sample.
                found = replace(kept, chunks=found.chunks, retired=found.retired)
            library.catalog.collections.set_retrieval(collection, found.as_json())
    except TROUBLE as error:
        log.warning("how much meaning and words count in collection %r could not be learnt: %s", collection.name, error)


def learnt_from_texts(
    library: Library, models: Models, collection: Collection, *, embed: bool = False
) -> tuple[Balance, LearntFusion]:
    """`embed`: sentences whose vectors are not kept, too; else their chunks are passed over."""
    source = library.catalog.source(collection)
    now, live = source.position(), source.live_ids({})
    found = balance(_sample(library, models, collection, live, embed))
    figures = {SAMPLED: found.chunks, "meaning": found.meaning, "words": found.words}
    if found.ratio is not None:
        figures["ratio"] = found.ratio
    return found, LearntFusion(found.vector_share, LINEAR, COLLECTION, now.live, now.retired, figures)


def _sample(library: Library, models: Models, collection: Collection, live: IntArray, embed: bool) -> list[Withheld]:
    from app.models.sentences import sentences_of  # it imports torch

    chance = np.random.default_rng(_SEED)
    order = chance.permutation(live)[:LOOKED_AT]
    sample: list[Withheld] = []
    for start in range(0, len(order), _BATCH):
        ids = order[start : start + _BATCH]
        texts = {one.chunk.id: one.chunk.text for one in library.catalog.chunks.found(ids)}
        kept = library.catalog.source(collection).sentences(ids)
        for chunk, packed in zip(ids.tolist(), kept, strict=True):
            if chunk not in texts:
                continue  # deleted meanwhile
            sentences = sentences_of(texts[chunk])
            if not asking(sentences):
                continue
            vectors = unpack(packed or b"", collection.dimension)
            if len(vectors) != len(sentences):
                if not embed:
                    continue
                vectors = models.sentences.embed(sentences)
            one = withheld(sentences, vectors, chance)
            sample += [] if one is None else [one]
            if len(sample) == MOST_CHUNKS:
                return sample
    return sample
