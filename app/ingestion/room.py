"""Room on the disk: for the catalog, whose end is told before there is none left, and for KV, which may wait."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from app.client.amounts import size
from app.errors import DiskShort, IngestError
from app.ingestion.survey import Pending
from app.library.catalog.records import Collection
from app.library.catalog.sentences import AT_ONCE
from app.library.identities import current_identity
from app.models import Models
from app.settings import KvMode, Settings
from ragcache.errors import ConfigError, ModelError, StoreError, StoreFull
from ragcache.host import free_bytes, one_disk
from ragcache.store.folder import CacheFolder, engine_name
from retriever.shared_property import shared_property
from splitter import parse_spec
from splitter.documents import STOPS

if TYPE_CHECKING:
    from ragcache.store import KVStore

# Kept free for everybody else on the machine, and for the catalog, which is written last.
RESERVE = 256 << 20
ORDINARY = 1 << 30  # that a document may need, with its KV: some 10,000 tokens of a model of a billion parameters
TEXT = {".txt", ".md", ".markdown", ".csv", ".tsv", ".json", ".jsonl", ".py", ".rst", ".log", ""}
# Bytes of a file for each token, about: of plain texts, and of formats with pictures, fonts and markup in them.
PER_TOKEN, PER_TOKEN_OTHERS = 4, 30
CHARACTERS = 3  # of a text for each token at least, in most languages
AGAIN = 1.2  # of KV for each token: what opens a run of chunks is computed anew
# Of the catalog for each character: its own bytes in the text and in the chunks, and what stands beside them; and of
# the index of words.
PER_CHARACTER, WORDS = 4, 1
SENTENCE = 80  # characters, as most are
_SENTENCES = re.compile(rf"[.!?](?=\s)|(?<![.!?\s])\n|[。！？{STOPS}]")  # that end here: rows and turns are some too
TYPICAL = 1 / 2  # how much of its limit a chunk takes, about, where chunks are small
# All that goes where KV of other models is to go.
OTHERS_GO = (
    "delete KV of other models, and with it that of other system prompts, of conversations and of what no collection "
    "has (`ragcache cache prune --all-engines`)"
)
LOGGED = 2  # what SQLite writes of each change: to its log, and then to the catalog


@dataclass(frozen=True)
class KvTurn:
    """Of an ingest of one file, whose KV may take several turns."""

    is_over: Callable[[], bool] = lambda: False  # asked behind each chunk: the document comes then
    put_off: Callable[[], bool] = lambda: False  # the rest waits for another turn, where that could be written down
    goes_on: bool = False  # an earlier one has put KV off


class KvRoom:
    """Of one ingest: which documents get their KV now. Under `auto` those that fit into what the budget and the disk
    leave, and nothing that is there makes room for them; under `eager` all do.
    """

    def __init__(self, models: Models, mode: KvMode, *, looking: bool = False, turn: KvTurn | None = None):
        """`looking`: for what changes nothing, and makes no store."""
        self.turn, self.put_off = turn or KvTurn(), False  # whether another turn computes the rest
        self._models, self._settings, self.asked = models, models.settings, mode
        self.mode: KvMode = "on-use" if mode != "off" and not models.disk_bytes else mode
        self.remedy = ""  # for the first document that did not fit
        self._ended, self._looking = False, looking
        self._to_come: dict[str, int] = {}  # by file: bytes of the disk that the catalog will take
        self.kept = 0  # of all of them

    @property
    def now(self) -> bool:
        """Whether any document gets its KV now."""
        return self.mode == "eager" or (self.mode == "auto" and not self._ended and self.left() > 0)

    @shared_property
    def store(self) -> KVStore:
        """What KV is put into now. It imports torch."""
        if self._is_shared:
            return self._models.store
        from app.models.loading import load_store

        own = self._settings.model_copy(update={"kv": self.mode, "ram_bytes": 0, "disk_bytes": self._models.disk_bytes})
        if self.mode == "eager":
            return load_store(own)
        return load_store(own, evicts=False, floor=self._stays_free)

    @property
    def _is_shared(self) -> bool:
        return self.mode == self._settings.kv == "eager"

    def gives_way(self, crowds: Callable[[], bool]) -> bool:
        """Whether no more is computed in this turn. Where it `crowds` other KV out there is one more alone: in each it
        may make room by what it computed before. The rest is then left to use.
        """
        if self.put_off or not self.turn.is_over():
            return self.put_off
        if self.turn.goes_on and crowds():
            return True
        self.put_off = self.turn.put_off()
        return self.put_off

    def close(self) -> None:
        """Nothing is put into it any more."""
        if not self._is_shared and (store := KvRoom.store.peek(self)):
            store.close()

    def left(self) -> int:
        """Bytes, of the one that has less."""
        return min(self._of_budget(), self._of_disk())

    def nbytes(self, texts: Iterable[str]) -> int:
        """Of a document of such chunks."""
        from app.ingestion.estimate import KvSize, chunk_lengths  # it imports torch

        template = self._models.template
        return round(KvSize(self._settings, template).of(chunk_lengths(template, texts)).kv_bytes)

    def choose(self, sizes: Iterable[int]) -> list[bool]:
        """Of documents with so many bytes of KV, taken together."""
        if self.mode != "auto":
            return [self.mode == "eager" for _ in sizes]
        chosen, left = [], 0 if self._ended else self.left()
        for nbytes in sizes:
            chosen.append(fits := nbytes <= left > 0)
            left -= nbytes if fits else 0
        if not all(chosen):
            self.remedy = self.remedy or self.more()
        return chosen

    def keep_for(self, files: Mapping[str, int]) -> None:
        """Files that are to come, and the bytes that the catalog will take for each."""
        self._to_come, self.kept = dict(files), sum(files.values())

    def came(self, file: Pending) -> None:
        """It is in the catalog, or never will be."""
        self.kept -= self._to_come.pop(file.source, 0)

    def short(self) -> None:
        """Something has no room."""
        if self.mode == "auto":
            self.remedy = self.remedy or self.more()

    def ended(self, error: StoreFull) -> None:
        """Something that was chosen was refused: others have taken its room meanwhile, or the disk takes less than it
        tells, as with a quota. Whatever else is tried would be computed in vain.
        """
        self._ended = True
        if error.__cause__ is None:  # by the measure of the tier, which ours is
            self.short()
        self.remedy = self.remedy or (
            f"free space on the disk of {self._settings.cache_dir}, which takes no more ({error.__cause__}),"
        )

    def more(self) -> str:
        """What to do for more of it."""
        first = f"{OTHERS_GO}, or " if self._of_others else ""
        if self._of_budget() <= self._of_disk():
            return f"{first}raise RAGCACHE_DISK_BYTES"
        leaves = size(self._stays_free())
        return f"{first}free space on the disk of {self._settings.cache_dir}, of which KV leaves {leaves} free,"

    @shared_property
    def _of_others(self) -> bool:
        """Whether models that are not that of the settings have KV there, which counts as taken."""
        try:
            engines = {item.engine for item in CacheFolder(self._settings.kv_folder).items()}
            return bool(engines) and engines != {engine_name(current_identity(self._models).fingerprint)}
        except (ConfigError, ModelError, StoreError):
            return False

    def _of_budget(self) -> int:
        """Of that which is in force now: whoever runs a server may change it amid an ingest."""
        budget = self._models.disk_bytes
        if self._looking:
            return budget - sum(one.nbytes for one in CacheFolder(self._settings.kv_folder).items())
        kept = self.store.kept
        if not self._is_shared and kept.budget != budget:
            self.store.resize(kept.tier, budget)
        return budget - kept.nbytes

    def _of_disk(self) -> int:
        return free_bytes(self._settings.kv_folder) - self._stays_free()

    def _stays_free(self) -> int:
        """Bytes of the disk, for everybody else and for what is to come."""
        shared = self.kept and one_disk(self._settings.kv_folder, self._settings.data_dir)
        return self._floor + (self.kept if shared else 0)

    @property
    def _floor(self) -> int:
        return self._settings.model_copy(update={"kv": self.mode}).disk_floor


class DiskCheck:
    """Of one ingest, with KV of every document or without."""

    def __init__(self, settings: Settings, kv_bytes: int, collection: Collection):
        """`kv_bytes`: of the disk, that KV of its documents may take; 0 where they get none."""
        self._settings, self._collection, self._most = settings, collection, kv_bytes

    @shared_property
    def _per_token(self) -> float:
        """Bytes of KV. Asked for when there is a file to read: it imports torch."""
        if not self._most:
            return 0.0
        from app.ingestion.estimate import bytes_per_token

        return bytes_per_token(self._settings) * AGAIN

    def of_text(self, text: str, chunks: int | None = None) -> int:
        """Bytes of the catalog, with its log, and of the index, of a text in so many chunks; where they are not known
        yet, in as few as may be.
        """
        sentences = 1 + sum(1 for _ in _SENTENCES.finditer(text))
        chunk = len(text) / max(1, chunks) if chunks is not None else self._longest
        rows, vectors, index = (len(text) * part for part in self._per_character(len(text) / sentences, chunk))
        at_first = LOGGED * (rows + min(vectors, AT_ONCE))
        if vectors <= AT_ONCE:
            return int(at_first + index)
        return int(max(at_first, rows + vectors + AT_ONCE + index))  # most sentences come later (sentences.py)

    def growth(self, files: Iterable[Pending]) -> dict[str, int]:
        """By file: of the catalog and the index in the end, about, by their sizes alone, and beyond what older versions
        of the files have there already.
        """
        of_token = PER_TOKEN * sum(self._per_character(SENTENCE, self._longest * TYPICAL))
        return {file.source: round(file.growth / per_token(file.source) * of_token) for file in files}

    @property
    def _longest(self) -> int:
        """Characters of a chunk, about, that is as long as may be."""
        longest = _limit(self._collection.splitter_settings.get("max_tokens"), self._settings.chunk_tokens)
        own = parse_spec(self._collection.splitter)[1].get("chunk_size")  # of a node parser, whose nodes are cut above
        return CHARACTERS * min(longest, _limit(own, longest))

    def _per_character(self, sentence: float, chunk: float) -> tuple[float, float, float]:
        """Of the catalog without sentences, of its sentences, and of the index, for such lengths. Vectors take most of
        it: of chunks, in 4 bytes a number, in the catalog and in the index, and of sentences, in one and 4 for the
        scale.
        """
        dimension = self._collection.dimension
        of_index = WORDS + 4 * dimension / chunk
        if self._settings.database_url is not None:  # the catalog is elsewhere
            return 0.0, 0.0, of_index
        of_sentences = (dimension + 4) * (1 / max(1.0, sentence) + 1 / chunk)  # each chunk may begin amid one
        return PER_CHARACTER + 4 * dimension / chunk, of_sentences, of_index

    def warning(self, files: Sequence[Pending]) -> str | None:
        """By the sizes of the files alone, so roughly."""
        needed = int(sum(file.readable / per_token(file.source) for file in files) * self._per_token)
        free = free_bytes(self._settings.kv_folder)
        if needed > self._most:
            return (
                f"these files may come to {size(needed)} of KV, and RAGCACHE_DISK_BYTES keeps {size(self._most)}: "
                "older KV makes room for new. `--dry-run` tells more, `--kv auto` computes no more than fits"
            )
        if needed + RESERVE > free:
            return (
                f"these files may come to {size(needed)} of KV, and the disk of {self._settings.cache_dir} has "
                f"{size(free)} free: the ingest will stop before it is full. `--dry-run` tells more, `--kv auto` "
                "computes no more than fits"
            )
        return None

    def check(self, text: str, chunks: int | None = None) -> None:
        """Before a document is cut, which takes long, and when it is cut and to be written. Raises DiskShort where
        that would fill a disk.
        """
        kv = int(len(text) / CHARACTERS * self._per_token)
        if kv:
            self._check(self._settings.cache_dir, min(kv, self._most))
        if self._settings.database_url is None:
            self._check(self._settings.data_dir, self.of_text(text, chunks))

    def _check(self, folder: Path, needed: int) -> None:
        free = free_bytes(folder)
        if needed + RESERVE > free:
            # Where an ordinary document has room, it is a large one that has none, and will have none.
            kind = DiskShort if free < 2 * RESERVE or needed <= ORDINARY else IngestError
            raise kind(
                f"the disk of {folder} is nearly full: {size(free)} are free, and the next document may need "
                f"{size(needed)} beside a reserve of {size(RESERVE)}. Free some space and run the "
                "same command again: what is in stays, and it goes on there"
            )


def per_token(source: str) -> int:
    """Bytes of a file."""
    return PER_TOKEN if Path(source).suffix.lower() in TEXT else PER_TOKEN_OTHERS


def _limit(value: object, default: int) -> int:
    return int(value) if isinstance(value, int) and value > 0 else default
