"""Which linker answers a collection near enough for the least compute: measured on questions to its own texts, or on
some that are given.

What is chosen on few questions looks better on them than it is. So they are halved: what one half would choose is
measured on the other, and nothing is kept that misses the target there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from app.answering.calibration import asked_of_its_texts, cached_plan
from app.answering.divergence import forced_answers
from app.answering.question_prompts import QuestionPrompts
from app.answering.target import AnswerTarget
from app.library import Library
from app.models import Models
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.errors import ConfigError, RagcacheError
from ragcache.linking import make_linker
from ragcache.report import FULL
from ragcache.types import Segment

TRIED = (
    "fast",
    *(f"auto:ratio={ratio}" for ratio in (0.02, 0.05, 0.1, 0.2, 0.4)),
    *(f"cci:alpha={alpha}" for alpha in (0.5, 1.0, 2.0)),
)
NOTHING = FULL  # where none of them is near enough
QUESTIONS, FEWEST = 16, 6  # that are measured; of fewer, halves would be chance
STEPS = 16  # tokens of an answer
MOST_TOKENS = 60_000  # of prompts, in all
_SEED = 0
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LinkerTrial:
    linker: str
    kl: float  # nats a token from a full recompute
    part: float  # of the tokens before the question, computed again, probes charged
    alike: float | None = None  # of the texts, by the target's measure where it is one of them


@dataclass(frozen=True)
class Aimed:
    """`linker` is NOTHING where none reaches the target, also on questions that had no part in the choice."""

    target: str
    linker: str
    questions: int
    trials: tuple[LinkerTrial, ...]  # on all of them, the one that computes least first
    held_out: LinkerTrial | None  # what each half chose, on the other; None where one of them chose none


def aim(
    library: Library, models: Models, name: str, target: AnswerTarget, questions: Sequence[str] | None = None
) -> Aimed:
    """Raises ConfigError where it cannot be measured: by another engine, or with too few questions whose chunks are
    cached.
    """
    if library.settings.engine != "torch":
        raise ConfigError("a target is aimed at by the torch engine: give --engine torch")
    prompts = QuestionPrompts(library, models)
    forcing = forced_answers(prompts.answering.cache, STEPS, prompts.answering.template.stop)
    measured = list(_measured(prompts, forcing, name, target, questions))
    if len(measured) < FEWEST:
        raise ConfigError(
            f"collection {name!r} has too few questions whose chunks have KV: {len(measured)} prompts could be "
            f"measured, and it takes {FEWEST}: let `ragcache cache warm` compute it"
        )
    found = np.array(measured)  # [questions, linkers, figures]
    halves = np.array_split(np.random.default_rng(_SEED).permutation(len(found)), 2)
    return chosen(found, halves, target)


def chosen(found: Floats, halves: Sequence[npt.NDArray[np.int64]], target: AnswerTarget) -> Aimed:
    """`found`: KL, part and likeness of the texts. [questions, linkers, 3]"""
    means = found.mean(axis=0)
    order = np.argsort(means[:, 1], kind="stable")
    trials = tuple(_trial(TRIED[place], means[place], target) for place in order)
    one, other = halves
    choices = [_least(found[half].mean(axis=0), target) for half in (one, other)]
    best, held = _least(means, target), None
    if choices[0] is not None and choices[1] is not None:
        figures = np.concatenate([found[other, choices[0]], found[one, choices[1]]]).mean(axis=0)
        names = dict.fromkeys(TRIED[choice] for choice in choices if choice is not None)
        held = _trial(" or ".join(names), figures, target)
    reached = best is not None and held is not None and _reaches(figures, target)
    return Aimed(str(target), TRIED[best] if reached and best is not None else NOTHING, len(found), trials, held)


def _trial(linker: str, figures: Floats, target: AnswerTarget) -> LinkerTrial:
    kl, part, alike = map(float, figures)
    return LinkerTrial(linker, kl, part, None if target.alike is None else alike)


def _reaches(figures: Floats, target: AnswerTarget) -> bool:
    return target.reached(float(figures[0]), float(figures[2]))


def _least(means: Floats, target: AnswerTarget) -> int | None:
    """The one that computes least of those that are near enough."""
    near = [place for place in range(len(TRIED)) if _reaches(means[place], target)]
    return min(near, key=lambda place: means[place, 1], default=None)


def _measured(
    prompts: QuestionPrompts, forcing: ForcedAnswers, name: str, target: AnswerTarget, questions: Sequence[str] | None
) -> Iterator[list[tuple[float, float, float]]]:
    linkers, tokens, decode = [make_linker(one) for one in TRIED], 0, prompts.answering.template.decode
    repairable = (one for one in _asked(prompts, name, questions) if _is_repairable(forcing, one))
    for segments in islice(repairable, QUESTIONS):
        ids, expected = forcing.full(segments)
        row = []
        for linker in linkers:
            made, alike = forcing.prefilled(segments, linker), math.nan
            if target.alike is not None:
                alike = target.alike(decode(forcing.free(made, made.logits)), decode(ids))
            row.append((forcing.divergence(made, ids, expected), made.report.part, alike))
        yield row
        tokens += sum(map(len, segments))
        if tokens >= MOST_TOKENS:
            return


def _asked(prompts: QuestionPrompts, name: str, questions: Sequence[str] | None) -> Iterator[Sequence[Segment]]:
    if questions is None:
        yield from asked_of_its_texts(prompts, name)
        return
    for question in questions:
        try:
            yield prompts.of(question, name, STEPS)
        except RagcacheError:  # nothing that can be searched for, or too long for the model
            continue


def _is_repairable(forcing: ForcedAnswers, segments: Sequence[Segment]) -> bool:
    """All chunks are cached, and not all as they are: then no linker has anything to do."""
    plan = cached_plan(forcing, segments)
    return plan is not None and any(not chunk.candidates[0].unchanged for chunk in plan.chunks)
