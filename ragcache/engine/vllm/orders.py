"""What the scheduler's side of the connector tells the workers to do in a step, and what they answer.

Every rank gets the same orders and obeys them in the same order, so that tensor-parallel ranks never wait for each
other in different passes. What takes its own time on each rank (reading a file) is answered one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ragcache.linking.base import Reduction
from ragcache.loader import PieceLoaded, SegmentPiece
from ragcache.policy import Work
from ragcache.types import FloatArray, Segment, VariantKey

Within = Callable[[str], AbstractContextManager[None]]  # by request: what breaks in it is that one's alone


@dataclass(frozen=True)
class PromptRows:
    """Rows of one prompt to compute."""

    ids: tuple[int, ...]  # of the rows
    positions: tuple[int, ...]  # ascending, one per row
    blocks: tuple[int, ...]  # of the prompt, in order: the KV of position p lies in blocks[p // block size]


@dataclass(frozen=True)
class Fetch:
    """Begin to read these pieces of a request that waits in vLLM's queue: its Load will place some of them, or all."""

    request: str
    pieces: tuple[SegmentPiece, ...]


@dataclass(frozen=True)
class Load:
    """Fetch these pieces and place them; positions before `skip` hold right KV already, shared with others."""

    request: str
    pieces: tuple[SegmentPiece, ...]
    blocks: tuple[int, ...]
    skip: int
    room: int  # positions to make room for
    exchange: str = ""  # where in this process the variants lie; "" is the store
    linking: float = 0.0  # see Loader.begin


@dataclass(frozen=True)
class Drop:
    """Fetch this piece no more: it is computed. What was placed of it counts for nothing."""

    request: str
    piece: int
    until: int | None = None  # what of it stands before this position alone


@dataclass(frozen=True)
class Probe:
    """What the question reads: attention of the prompt's positions from `question` on to those before it."""

    request: str
    rows: PromptRows  # what is missing, and the question
    question: int
    layers: range  # whose attention is read; those before are passed through
    reduction: Reduction  # over the question's tokens


@dataclass(frozen=True)
class Compute:
    request: str
    rows: PromptRows
    valid: int = 0  # KV before this position is right even where these rows fail
    ahead: bool = False  # while others are loaded: a probe that comes later reads these rows too
    lags: bool = False  # upper layers come amid it, on one rank at least

    @property
    def tokens(self) -> int:
        return len(self.rows.ids)


@dataclass(frozen=True)
class Capture:
    """Compute the next slice of the segment right behind the pieces that were loaded; after the last one, keep the KV
    and the profile of all under `key`, if it is the address of what was placed and computed.
    """

    request: str
    rows: PromptRows
    segment: Segment
    start: int  # the segment's first position
    key: VariantKey
    exchange: str = ""

    @property
    def tokens(self) -> int:
        return len(self.rows.ids)

    @property
    def last(self) -> bool:
        return self.rows.positions[-1] + 1 == self.start + len(self.segment)


@dataclass(frozen=True)
class Orders:
    """In this order."""

    release: tuple[str, ...] = ()  # requests that need their room no more
    fetch: tuple[Fetch, ...] = ()
    forgo: tuple[str, ...] = ()  # of whom something was fetched, and nothing will be loaded
    load: tuple[Load, ...] = ()
    drop: tuple[Drop, ...] = ()
    probe: tuple[Probe, ...] = ()
    compute: tuple[Compute, ...] = ()
    capture: tuple[Capture, ...] = ()
    linked: tuple[str, ...] = ()  # those of `finish` whose KV is to be whole
    finish: tuple[str, ...] = ()  # tell vLLM that these requests' KV is there, and forget them
    failed: tuple[str, ...] = ()  # those of `finish` whose KV is not there: vLLM computes it
    idle: bool = False  # no request runs beside: waiting for a file delays nobody
    work: Work | None = None  # of the whole step, vLLM's own among it; None where its time would tell nothing

    def __bool__(self) -> bool:
        work = self.probe or self.compute or self.capture
        read = self.fetch or self.forgo or self.load or self.drop
        return bool(self.release or read or work or self.finish)


@dataclass(frozen=True)
class Loaded:
    """A piece was placed, or could not be."""

    request: str
    piece: PieceLoaded


@dataclass(frozen=True)
class Looked:
    """What had been loaded by then was told."""

    request: str
    when: float  # by the worker's perf_counter


@dataclass(frozen=True)
class Probed:
    request: str
    attention: FloatArray  # [question], of all ranks


@dataclass(frozen=True)
class Incident:
    """Something went wrong for a request and was worked around."""

    request: str
    incident: str


@dataclass(frozen=True)
class Stored:
    """What was captured is in the store, or will not be, of which an Incident tells."""

    request: str


@dataclass(frozen=True)
class Failed:
    """What was done for a request broke: it is not linked."""

    request: str
    reason: str


@dataclass(frozen=True)
class Timed:
    """Seconds that a worker spent for a request."""

    request: str
    stage: str
    seconds: float


@dataclass(frozen=True)
class Measured:
    """Seconds that a step took on a worker."""

    work: Work
    seconds: float


@dataclass
class Answers:
    """Of one rank in one step, or of all of them."""

    looked: list[Looked] = field(default_factory=list)
    loaded: list[Loaded] = field(default_factory=list)
    read: list[PieceLoaded] = field(default_factory=list)  # all of each, whose lower layers were told before
    probed: list[Probed] = field(default_factory=list)
    timed: list[Timed] = field(default_factory=list)
    incidents: list[Incident] = field(default_factory=list)
    stored: list[Stored] = field(default_factory=list)
    failed: list[Failed] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def joined(self, other: Answers) -> Answers:
        return Answers(**{name: mine + getattr(other, name) for name, mine in vars(self).items()})
