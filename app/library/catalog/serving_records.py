"""Records of what a server keeps beside the library; like all others they know no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from datetime import datetime
from typing import Any, Literal

from app.job_states import JobKind, JobState

Scope = Literal["read", "ingest", "admin"]
SCOPES: tuple[Scope, ...] = ("read", "ingest", "admin")


@dataclass(frozen=True)
class KeyLimits:
    """What one key may take; None: as much as the server's settings let everybody have."""

    requests_per_minute: int | None = None
    concurrent: int | None = None
    documents: int | None = None
    nbytes: int | None = None  # of documents

    @property
    def sends_all(self) -> bool:
        """Whatever there is to send."""
        return self.documents is None and self.nbytes is None


@dataclass(frozen=True)
class Key:
    """Its secret is known to its owner alone.

    `collections` are ids, which no other collection ever has: a key reads on in one that is renamed or embedded anew,
    and not in another that is made under the name of one that is gone.
    """

    id: str
    name: str
    scopes: frozenset[Scope]
    collections: frozenset[int] | None  # None: all, also those to come
    limits: KeyLimits
    created: datetime
    last_used: datetime | None = None  # about, to two minutes
    revoked: datetime | None = None
    expires: datetime | None = None

    def valid(self, moment: datetime) -> bool:
        return self.revoked is None and (self.expires is None or moment < self.expires)


@dataclass(frozen=True)
class StoredJob:
    """`lease` is of one claim: whoever holds another, or none, can no longer change the job as its worker."""

    id: str
    kind: JobKind
    collection_id: int
    owner: str  # the id of a key, or ""
    state: JobState
    request: Mapping[str, Any]
    created: datetime
    progress: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    attempts: int = 0
    cancelling: bool = False  # its worker has been asked to stop
    process: str | None = None  # that works on it, or did last
    lease: str | None = None
    leased_until: datetime | None = None
    started: datetime | None = None  # the last time
    finished: datetime | None = None

    @property
    def came(self) -> datetime:
        """When its file did; of jobs of older versions, which do not tell, when it was made or tried again."""
        told = self.request.get("came")
        return self.created if told is None else datetime.fromisoformat(told)


@dataclass(frozen=True)
class ContextCache:
    """What a client has the server remember, without its chunks, which `context_caches.chunks` reads."""

    id: str  # whoever knows it and is its owner may use it
    owner: str  # the id of a key, or ""
    border: str
    model: str  # fingerprint
    created: datetime
    used: datetime  # about, to a minute
    expires: datetime | None
    pinned: bool
    nbytes: int


@dataclass(frozen=True)
class CacheTally:
    """Sums of what the answers over a collection had of the cache, and of what computing its KV took."""

    answers: int = 0
    reused: int = 0  # tokens of chunks, by what became of them
    repaired: int = 0
    computed: int = 0
    ram: int = 0  # of the reused ones, by where they came from
    disk: int = 0
    bucket: int = 0
    prefix: int = 0
    first_s: float = 0.0  # to the first tokens
    estimated: int = 0  # answers of which the running rates tell what they would have taken without cache
    estimated_s: float = 0.0  # by which their first tokens were sooner than that
    compared: int = 0  # answers that were made once more, without cache
    compared_s: float = 0.0  # by which their first tokens were sooner than those
    captured: int = 0  # tokens whose KV was computed to be kept, by ingests and warming
    captured_s: float = 0.0

    def __add__(self, more: CacheTally) -> CacheTally:
        return CacheTally(*(one + other for one, other in zip(astuple(self), astuple(more), strict=True)))


@dataclass(frozen=True)
class HistoryPoint:
    """A step of time; `start` is in seconds of the epoch."""

    start: int
    tally: CacheTally


@dataclass(frozen=True)
class ReusedChunk:
    """A chunk of a collection whose KV served answers over that collection."""

    collection_id: int
    document_id: int
    source: str
    title: str
    chunk_id: int
    token_hash: str
    start: int  # in the document
    end: int
    text: str  # its beginning
    tokens: int
    uses: int
    reused: int  # tokens, in all uses together
    used: datetime  # the last time
