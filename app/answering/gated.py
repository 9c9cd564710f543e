"""What stands between a pipeline's answers and the cache: a model on which linking does not work, and collections whose
answers over caches drift.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from app.answering import Answer
from app.answering.quality import Level, NotMeasured, QualityGate, at_level
from app.models import Models
from ragcache.errors import FAULTS, reason_of
from ragcache.linking.base import Linker
from ragcache.linking.baselines import Full

if TYPE_CHECKING:
    from app.answering.answerer import Answering, AnswerRequest
    from app.answering.soundness import Soundness
    from ragcache.keeping import Keeper
    from ragcache.types import Segment

STEPS = 16  # tokens of an answer that is measured
MOST_TOKENS = 8192  # of its prompt
log = logging.getLogger(__name__)


class GatedAnswers:
    """Of one pipeline; threads share it."""

    def __init__(self, models: Models):
        self._models = models
        self.quality = QualityGate(models.settings.gate)
        self.soundness: Soundness | None = None  # of the model, once it is loaded and where somebody has measured it
        self.serves = False  # and does not end behind an answer

    def judge(self, *, measure: bool) -> None:
        """The model, which is loaded: where linking does not work on it, prompts are computed in full. `measure`: now,
        where no earlier start has, which takes a few prompts.
        """
        self.serves = self.serves or measure
        if not self.quality.share or self.soundness is not None:
            return
        from app.answering.soundness import known_soundness, measured_soundness  # they import torch

        cache, model = self._models.cache, self._models.language
        self.soundness = (measured_soundness if measure else known_soundness)(model, cache.linker)
        if self.soundness is not None and not self.soundness.sound:
            log.warning("%s", self.soundness.warning)
            cache.linker = Full()

    def chosen(self, collection: int, linker: Linker) -> tuple[Linker, tuple[str, ...]]:
        """What a question is answered with whose user asked for no linker, and what he should know of that."""
        if self.soundness is not None and not self.soundness.sound:
            return linker, (self.soundness.warning,)
        return self.quality.linker(collection, linker), self.quality.notes(collection)

    def measuring(
        self,
        collection: int,
        answering: Answering,
        request: AnswerRequest,
        linker: Linker,
        segments: Sequence[Segment],
    ) -> Callable[[Answer], Answer]:
        """Behind the answer, if it is one of those that are measured. `linker`: what it would have without the gate.

        Not of a client's own System segment, whose KV is kept for nobody, and which tells nothing of others' prompts.
        """

        def then(answer: Answer) -> Answer:
            measurable = self.serves and request.found and answering.behind is None and not linker.recompute_all
            if measurable and answer.report.prompt_tokens <= MOST_TOKENS and self._models.loaded:
                asked = (request.question, *(one.chunk_id for one in request.found))
                if self.quality.samples(collection, hash(asked)):
                    keeper = self._models.loaded.keeper
                    measure = partial(self._measure, keeper, collection, answering, linker, segments)
                    # What answers lack goes first: behind a measurement it would wait long where they never cease.
                    keeper.later(measure, last=True)
            return answer

        return then

    def _measure(
        self,
        keeper: Keeper,
        collection: int,
        answering: Answering,
        linker: Linker,
        segments: Sequence[Segment],
    ) -> list[str]:
        from app.answering.divergence import divergence_of  # it imports torch

        started, levels, waited = perf_counter(), self.quality.levels(collection, linker), 0.0

        def pause() -> None:
            nonlocal waited
            began = perf_counter()
            keeper.pause()
            waited += perf_counter() - began

        measured: list[tuple[Level, float]] | None = None
        try:
            # However few tokens were asked for: the first ones are farther off than those of which the limit was made.
            room = answering.cache.engine.spec.max_tokens - sum(map(len, segments))
            stop = answering.template.stop
            divergence = divergence_of(answering.cache, min(STEPS, room), stop, pause, keeper.disturbed)
            found = divergence.of(segments, [at_level(linker, one) for one in levels])
            measured = list(zip(levels, found, strict=False))
        except NotMeasured as error:
            log.info("an answer was not measured: %s", error)
        except FAULTS as error:  # nobody asked for it
            log.warning("an answer could not be measured: %s", reason_of(error))
        finally:
            self.quality.found(collection, measured, perf_counter() - started - waited)
        return []
