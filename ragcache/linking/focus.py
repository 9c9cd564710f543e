"""Which chunks a question reads (Cache-Craft, algorithm 1)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ragcache.linking.base import Choice, LinkedPrompt, Linker, tokens_of

LEAST = 3  # chunks: between fewer there is no step of the entropy to compare


class FocusWatch:
    """Of one pass: the chunks that lead by what the question has read up to a layer, once they have been the same for
    `window` layers.
    """

    def __init__(self, window: int):
        self._window = window
        self._leading: frozenset[int] = frozenset()
        self._held = 0  # layers

    def see(self, read: npt.NDArray[np.float64]) -> frozenset[int] | None:
        """After a layer, what the question has read of each chunk so far (eq 15); the focused ones, when they are
        known.
        """
        if len(read) < LEAST:
            return None
        leading = frozenset(leading_chunks(read).tolist())
        self._held = self._held + 1 if leading == self._leading else 1
        self._leading = leading
        return leading if self._held >= self._window else None


def probes(linker: Linker, chunks: int) -> bool:
    """Whether a probe is asked for, of so many cached chunks, where it tells what leads."""
    return linker.probes or (linker.focus > 0 and chunks >= LEAST)


def narrowed(choice: Choice, prompt: LinkedPrompt) -> Choice:
    """To the chunks that lead by what a probe of the question reads, for an engine whose rows cannot end amid a pass:
    of the others nothing is repaired.
    """
    if len(prompt.chunks) < LEAST or not len(choice.positions):
        return choice
    read = prompt.question_attention("mean").astype(np.float64)
    leading = leading_chunks(np.asarray([read[one.start : one.end].sum() for one in prompt.chunks]))
    kept = np.intersect1d(choice.positions, tokens_of([prompt.chunks[place] for place in leading]), assume_unique=True)
    return replace(choice, positions=kept)


def leading_chunks(read: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Those before the largest step of the entropy of the gaps (lines 4 to 9)."""
    order = np.argsort(-read, kind="stable")
    gaps = -np.diff(read[order])
    if not (whole := gaps.sum()) > 0:
        return order
    shares = gaps / whole
    steps = -shares * np.log(np.where(shares > 0, shares, 1.0))
    return order[: int(np.argmax(steps[1:])) + 1]
