"""The words of a collection: an inverted index that follows a Source, searched by BM25."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retriever import FloatArray, IntArray, RetrieverError, Vectors
from retriever.bm25 import TYPES, Scored, WordSegment, build, compacted, hashed, merge, score
from retriever.derived import DerivedIndex
from retriever.generations import Distrusted, Generations, Manifest
from retriever.languages import SMALL_WORDS, STEMS
from retriever.source import Source
from retriever.words import asked_terms, language_mark, words

# Of how texts become words; another one makes the index anew.
IDENTITY = f"words 8, stems {STEMS}, Unicode {unicodedata.unidata_version}"
TIER = 2  # a segment holds at least so many times the chunks of the next: a logarithm of them is searched
DEAD_PART = 4  # a segment is written anew when one chunk of so many is gone
_ALIGNED = 64
_MARKS = np.array([hashed(*language_mark(name)) for name in SMALL_WORDS], dtype=np.uint64)


class KeywordIndex(DerivedIndex):
    def __init__(self, folder: Path | None = None) -> None:
        """Without a folder the index lives in memory and is made again each time."""
        super().__init__(IDENTITY, None if folder is None else Generations(folder, "keywords", "bm25"))
        self._segments: list[WordSegment] = []

    @property
    def live(self) -> int:
        return sum(segment.live for segment in self._segments)

    @property
    def nbytes(self) -> int:
        """Also of what the system may forget, as it reads it again from the file."""
        return sum(array.nbytes for segment in [*self._segments] for array in segment.arrays().values())

    def search(self, text: str, k: int, allowed: IntArray | None = None) -> tuple[IntArray, FloatArray]:
        """Ids and scores of at most k chunks that hold a word of the text, best first; of the allowed ids if given."""
        if k < 1:
            raise RetrieverError(f"a search for {k} chunks finds nothing: ask for at least 1")
        with self._lock:
            return self._scored(text).best(k, allowed)

    def covered(self, text: str, k: int, allowed: IntArray | None, others: IntArray) -> tuple[IntArray, FloatArray]:
        """Ids of the best k and of `others`, and of what was asked the part that each holds, from 0 to 1: words that
        no chunk has count as asked, so that a question in other words than the texts' finds nothing to be sure of.
        """
        with self._lock:
            scored = self._scored(text)
            ids = np.union1d(scored.best(k, allowed)[0], others)
            return ids, scored.of(ids) / scored.most if scored.most else np.zeros(len(ids))

    def _scored(self, text: str) -> Scored:
        there = self._have(_MARKS)
        languages = [name for name, has in zip(SMALL_WORDS, there, strict=True) if has]
        return score(self._segments, asked_terms(text, languages, self._known))

    def _known(self, stems: Sequence[str]) -> list[bool]:
        return list(map(bool, self._have(np.array([hashed(stem) for stem in stems], dtype=np.uint64))))

    def _have(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of them any segment has."""
        found = np.zeros(len(hashes), dtype=np.bool_)
        for segment in self._segments:
            starts, stops = segment.spans(hashes)
            found |= stops > starts
        return found

    def check_integrity(self) -> None:
        with self._lock:
            ids = np.concatenate([segment.ids for segment in self._segments]) if self._segments else np.empty(0)
            assert (np.diff(ids) > 0).all(), "ids ascend through all segments"
            assert self.live == self.position.live, (self.live, self.position)
            for segment in self._segments:
                assert segment.starts[0] == 0 and segment.starts[-1] == len(segment.places) == len(segment.times)
                assert (np.diff(segment.hashes.astype(object)) > 0).all(), "words ascend"
                assert (np.diff(segment.starts) > 0).all(), "every word has postings"
                assert (segment.places < len(segment.ids)).all()

    def _add(self, ids: IntArray, texts: list[str], vectors: Vectors) -> int:
        last = int(self._segments[-1].ids[-1]) if self._segments else 0
        fresh = np.flatnonzero(ids > last)  # ids ascend, so the others are there
        if not len(fresh):
            return 0
        self._segments.append(build(ids[fresh], [texts[at] for at in fresh]))
        return self._merge_tiers()

    def _remove(self, ids: IntArray) -> None:
        for segment in self._segments:
            segment.remove(ids)

    def _clear(self) -> None:
        self._segments = []

    def _settle(self) -> int:
        segments, anew = [segment for segment in self._segments if segment.live], 0
        for place, segment in enumerate(segments):
            if segment.dead * DEAD_PART > len(segment.ids):
                segments[place] = compacted(segment)
                anew += segment.live
        self._segments = segments
        return anew

    def _purge(self) -> None:
        """Deleted words could be read in the file. Searches go on meanwhile."""
        segments = [compacted(segment) if segment.dead else segment for segment in self._segments if segment.live]
        with self._lock:
            self._segments = segments

    def _merge_tiers(self) -> int:
        segments, count = self._segments, len(self._segments)
        while len(segments) > 1 and segments[-2].live < TIER * segments[-1].live:
            segments[-2:] = [merge(segments[-2:])]
        if len(segments) == count or self._saved is None:
            return 0
        return int(np.searchsorted(segments[-1].ids, self._saved.high, side="right"))

    def _agrees(self, source: Source) -> bool:
        """Whether the newest chunk has as many words in the source; one that it has retired since tells nothing."""
        live = [segment for segment in self._segments if segment.live]
        if not live:
            return True
        place = int(np.flatnonzero(live[-1].alive)[-1])
        newest = int(live[-1].ids[place])
        for ids, texts, _ in source.added(newest - 1, 1):
            return int(ids[0]) != newest or len(words(texts[0])) == int(live[-1].lengths[place])
        return True

    def _write(self, path: Path) -> None:
        with path.open("wb") as file:
            for segment in self._segments:
                for array in segment.arrays().values():
                    file.write(array.data)
                    file.write(bytes(-file.tell() % _ALIGNED))

    def _details(self) -> Mapping[str, Any]:
        return {
            "segments": [{name: len(array) for name, array in segment.arrays().items()} for segment in self._segments]
        }

    def _read(self, path: Path, manifest: Manifest) -> None:
        try:
            self._segments = _mapped(path, manifest.details["segments"])
        except (KeyError, TypeError, ValueError) as error:
            raise Distrusted(f"{path.name} does not hold what its manifest says: {error}") from error


def _mapped(path: Path, lengths: list[dict[str, int]]) -> list[WordSegment]:
    """Arrays that the system reads when they are looked at, and forgets when memory is short."""
    data = np.memmap(path, dtype=np.uint8, mode="r") if path.stat().st_size else np.empty(0, np.uint8)
    segments, at = [], 0
    for counts in lengths:
        arrays = {}
        for name, form in TYPES.items():
            size = counts[name] * np.dtype(form).itemsize
            arrays[name] = np.asarray(data[at : at + size]).view(form)
            at += size + -size % _ALIGNED
        arrays["alive"] = arrays["alive"].copy()
        segments.append(WordSegment(**arrays))
    return segments
