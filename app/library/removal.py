"""Documents and collections, deleted with all that hangs on them.

SQL first, in one transaction: from then on nothing of them is found any more. What was derived from them goes after it,
and what a killed process leaves of that is harmless: indexes catch up by themselves or, of a collection that goes, are
removed before it too, and the KV is found by the next removal from the collection or ingest into it, or where that is
gone by `cache prune`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from app.errors import MaintenanceError
from app.library import Library, indexes
from app.library.catalog.records import Collection, Removed
from app.library.identities import Identity
from app.library.kv import EverybodysContexts
from app.library.kv_removal import drop_kv, drop_prefixes, identities_to_drop
from app.library.originals import SCHEME, Originals
from app.library.pinning import unpin_collection
from app.models import Models

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Removal:
    """What went."""

    documents: int
    chunks: int
    kv_variants: int


def remove_documents(library: Library, models: Models, collection: Collection, document_ids: Sequence[int]) -> Removal:
    """Ids that are not there are passed over. Raises CatalogError while an ingest runs."""
    identities, originals = identities_to_drop(library, models), Originals(library)
    with library.catalog.alone(collection):
        sent = library.catalog.documents.contents(collection, SCHEME, document_ids)
        originals.check(sent)
        removed = library.catalog.documents.delete(collection, document_ids)
        originals.drop(sent)
        indexes.forget(library, collection)
        return _with_kv(library, models, collection, removed, identities)


def remove_collection(library: Library, models: Models, collection: Collection) -> Removal:
    """With its conversations, and all KV that is kept of any. Raises CatalogError while an ingest runs."""
    identities, originals = identities_to_drop(library, models), Originals(library)
    with library.catalog.alone(collection):
        sent = library.catalog.documents.contents(collection, SCHEME)
        originals.check(sent)
        unpin_collection(library, models, collection)
        with suppress(MaintenanceError):  # before it is gone too: who is killed then leaves none, or a new one is made
            indexes.discard(library, collection)
        removed = library.catalog.collections.delete(collection)
        originals.drop(sent)
        indexes.discard(library, collection)
        removal = _with_kv(library, models, collection, removed, identities, whole=True)
    library.catalog.discard_lock(collection)
    return removal


def _with_kv(
    library: Library,
    models: Models,
    collection: Collection,
    removed: Removed,
    identities: Iterable[Identity],
    whole: bool = False,
) -> Removal:
    ours, shared = library.catalog.orphans, EverybodysContexts(library)
    left = ours.left_by(collection)
    orphans = {*removed.orphans, *left} if whole else set(removed.orphans)  # behind the whole nobody comes
    loss = drop_kv(models, identities, orphans, collection, shared)
    if whole:
        with loss.noting(orphans):
            drop_prefixes(models)
    done = (set.union(*ours.of(collection)) if whole else orphans) - loss.kept
    ours.settle(collection, done, ended=whole)
    if loss.fault is not None:
        raise MaintenanceError(
            f"the documents are deleted, but not all of their KV: {loss.fault}; then run `ragcache cache prune`"
        ) from loss.fault
    earlier = left - orphans  # of who was killed, or did not find out whether others have it
    late = drop_kv(models, identities, earlier, collection, shared)
    if late.fault is not None:
        told = "KV of documents that were gone before was not deleted, the next ingest tries it again: %s"
        log.warning(told, late.fault)
    ours.settle(collection, earlier - late.kept)
    return Removal(removed.documents, removed.chunks, loss.variants + late.variants)
