"""From files to documents that can be asked about: read, cut, embedded, indexed, with their KV.

    from app.compose import opened
    from app.ingestion import IngestOptions
    from app.ingestion.ingest import Ingest

    with opened(settings) as (library, models):
        collection = library.collection_or_new("papers")
        result = Ingest(library, models, collection, IngestOptions(prune=True)).run([Path("papers")])
        print(result.added, result.failed)

A document becomes visible as a whole, in one transaction; an ingest that is stopped at any point goes on where it was
when it is run again. Importing this brings no model library, nor does an ingest that finds nothing new.

| module | does |
|---|---|
| `survey` | which files are new, changed, gone |
| `readers`, `worker` | files to texts, in processes of their own |
| `draft` | texts to chunks |
| `writer`, `capture` | chunks to embeddings, KV and rows; and what goes with them |
| `stages` | how far one file is on its way, and how long the rest takes |
| `room` | what it may take of the disk, and which documents have their KV at once |
| `outlook`, `estimate` | how much it will be: told at its start, and by a rehearsal |
| `ingest` | all of it, under the collection's lock |
| `queue`, `lanes` | what clients send, as jobs: whose turn it is, and what is done beside what |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from app.errors import IngestError
from app.settings import KvMode

if TYPE_CHECKING:
    from app.ingestion.estimate import Size

MOST_FILE_NOTES, LONGEST_NOTE = 20, 400  # of an ingest; characters


@dataclass(frozen=True)
class IngestOptions:
    glob: Sequence[str] = ()  # of the files in folders, those whose names or paths match one of these; all by default
    splitter: str | None = None  # of the collection, from the first file on that it cuts
    workers: int | None = None  # processes that read files; by the cores of the machine when None
    kv: KvMode | None = None  # whether the chunks' KV is computed now; as the settings say when None
    # Delete documents below the paths whose files are gone. Where all that was below a path is gone, True refuses.
    prune: bool | Literal["all"] = False
    retry_failed: bool = False  # read files again that failed before and have not changed since
    dry_run: bool = False  # read files and tell what would be done, but write nothing
    wait: bool = False  # for another ingest into the same collection, rather than raise

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise IngestError(f"workers={self.workers}: somebody has to read the files, so give at least 1")
        if self.kv is not None and self.kv not in get_args(KvMode):
            raise IngestError(f"kv={self.kv!r}: choose from {', '.join(get_args(KvMode))}")
        if self.prune not in (True, False, "all"):
            raise IngestError(f"prune={self.prune!r}: choose True, False or 'all'")


@dataclass(frozen=True)
class Failure:
    """A file that did not become a document."""

    source: str
    reason: str
    lasting: bool = field(default=False, compare=False)  # until the file changes, however often it is tried


@dataclass(frozen=True)
class IngestProgress:
    """How far an ingest is, in the files that it has to read."""

    files: int
    of_files: int
    nbytes: int  # of these files
    of_nbytes: int
    failed: int


@dataclass(frozen=True)
class IngestResult:
    """What an ingest did, or would have done if it was a dry run; of one that was stopped, what it did until then."""

    collection: str
    dry_run: bool
    added: int  # documents
    replaced: int  # documents whose files have changed
    unchanged: int
    skipped: int  # files that failed before and have not changed since
    pruned: int  # documents
    gone: tuple[str, ...]  # their sources
    failed: tuple[Failure, ...]
    chunks: int  # new ones
    tokens: int  # of them
    nbytes: int  # of the files that were read and are in now
    kv_variants: int
    kv_bytes: int  # of them, in memory; none in a dry run
    kv_disk_bytes: int  # in a dry run: what the files of the KV would come to
    on_use: int  # documents that have no KV yet, or not of all chunks: answers compute what they find
    seconds: float
    expected_seconds: float | None  # in a dry run, by how long earlier ingests took; None where there were none
    ways: Mapping[str, int]  # documents by how `auto` has cut them, and why
    notes: tuple[str, ...]  # what the user should know

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class FileNotes:
    """What loaders warned of, of the first files."""

    first: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, texts: Iterable[str]) -> None:
        for text in texts:
            note = text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]}…"
            if note in self.first:
                continue
            if len(self.first) < MOST_FILE_NOTES:
                self.first.append(note)
            else:
                self.more += 1

    @property
    def told(self) -> list[str]:
        return self.first + ([f"{self.more:,} more notes on files are not shown"] if self.more else [])


@dataclass
class IngestTally:
    """The numbers of a result while they grow."""

    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    skipped: int = 0
    pruned: int = 0
    chunks: int = 0
    tokens: int = 0
    nbytes: int = 0
    kv_variants: int = 0
    kv_bytes: int = 0
    kv_disk_bytes: int = 0
    on_use: int = 0
    expected_seconds: float | None = None
    gone: Mapping[str, int] = field(default_factory=dict)  # sources and ids of what is pruned
    failed: list[Failure] = field(default_factory=list)
    ways: dict[str, int] = field(default_factory=dict)  # documents by how they were cut
    notes: list[str] = field(default_factory=list)
    of_files: FileNotes = field(default_factory=FileNotes)  # beside them

    def document(self, replaced: bool, nbytes: int, chunks: int = 0, tokens: int = 0) -> None:
        """One that is in now."""
        if replaced:
            self.replaced += 1
        else:
            self.added += 1
        self.nbytes += nbytes
        self.chunks += chunks
        self.tokens += tokens

    def cut(self, way: str) -> None:
        if way:
            self.ways[way] = self.ways.get(way, 0) + 1

    def estimated(self, size: Size, rate: float | None) -> None:
        """Of a dry run; `rate` in tokens per second."""
        self.chunks, self.tokens = round(size.chunks), round(size.tokens)
        self.kv_variants, self.kv_disk_bytes = round(size.kv_variants), round(size.kv_bytes)
        self.expected_seconds = size.tokens / rate if rate else None

    def counts(self) -> dict[str, int]:
        numbers = {name: value for name, value in vars(self).items() if isinstance(value, int)}
        return numbers | {"failed": len(self.failed)}

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def result(self, collection: str, dry_run: bool, seconds: float) -> IngestResult:
        notes = (*self.of_files.told, *self.notes)
        lists = {"gone": tuple(sorted(self.gone)), "failed": tuple(self.failed), "notes": notes}
        values = vars(self) | lists | {"ways": dict(self.ways)}
        del values["of_files"]
        return IngestResult(**values, collection=collection, dry_run=dry_run, seconds=seconds)
