"""Pipelines whose answers are all measured, until their gate has come to something."""

from __future__ import annotations

import pytest

from app import RagPipeline
from app.answering import quality
from app.answering.quality import Level

QUESTION = "Who designed the lighthouse, and who bakes the bread of the year {}?"


def need_few(patch: pytest.MonkeyPatch) -> None:
    """Measurements make a change: how many is tested where they cost nothing."""
    patch.setattr(quality, "FEWEST", 3)
    patch.setattr(quality, "MOST", 4)


def refine_nothing(patch: pytest.MonkeyPatch, pipeline: RagPipeline) -> None:
    """What is computed anew behind spoilt KV is spoilt itself, and is there still when the other is no more."""
    patch.setattr(pipeline.models.cache, "refining", None)


def level_of(pipeline: RagPipeline, answers: int, until: Level | None = None) -> tuple[Level, int]:
    """After so many, or as soon as it is so; and how many it took."""
    level = Level.ASKED
    for number in range(answers):
        pipeline.ask(QUESTION.format(number))
        pipeline.settle()
        (state,) = pipeline.gate.quality.states()
        level = state.level
        if level is until:
            return level, number + 1
    return level, answers
