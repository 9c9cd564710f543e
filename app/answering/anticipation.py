"""What the next question of a conversation is likely to need, brought into memory while people read the answer: the
chunks beside those that were found.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from app.answering import Answer, retrieved
from app.answering.selection import places_beside
from app.answering.standing import in_prompt_order
from app.library.catalog import Catalog
from app.models import Models

if TYPE_CHECKING:
    from app.answering.answerer import Answering, AnswerRequest
    from ragcache.keeping import Keeper

MOST = 32  # chunks behind one answer


class Anticipation:
    """Of one pipeline; threads share it. A vLLM server has memory of its own, of which we know nothing."""

    def __init__(self, models: Models, catalog: Catalog):
        self._models, self._catalog = models, catalog
        self._beside = 0 if models.links_elsewhere else models.settings.anticipate
        self._lock = threading.Lock()
        self.lifted = 0  # chunks, since the start

    def behind(self, answering: Answering, request: AnswerRequest) -> Callable[[Answer], Answer]:
        """Behind the answer, when nobody waits for one."""

        def then(answer: Answer) -> Answer:
            loaded = self._models.loaded
            if self._beside and loaded is not None and request.found and answer.report.chunks:
                loaded.keeper.later(partial(self._lift, loaded.keeper, answering, request), last=True)
            return answer

        return then

    def _lift(self, keeper: Keeper, answering: Answering, request: AnswerRequest) -> list[str]:
        from ragcache.planning import plan_prompt
        from ragcache.store.lifting import lift

        chunks = self._catalog.chunks
        hits = chunks.found([one.chunk_id for one in request.found if isinstance(one.chunk_id, int)])
        beside = chunks.at(places_beside(hits, self._beside)[:MOST])
        # As they would stand in a prompt with those that were found: so they are planned with the same variants.
        placed = in_prompt_order([*request.found, *(retrieved(one, 0.0, "neighbour") for one in beside)])
        template, cache = answering.template, answering.cache
        question = template.question(request.question)
        segments = (template.system(), *(template.chunk(one.text) for one in placed), question)
        plan = plan_prompt(segments, cache.engine.spec.fingerprint, cache.source.store, others=False)
        likely = [one.candidates[0].info for one in plan.chunks if one.candidates]
        lifted = lift(cache.source.store, likely, keeper.pause)
        with self._lock:
            self.lifted += lifted
        return []
