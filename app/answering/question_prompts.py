"""Prompts of questions to a collection, as its answers have them: for those who measure how far these are off."""

from __future__ import annotations

from collections.abc import Sequence

from app.answering.answerer import Answering, AnswerRequest
from app.answering.gated import GatedAnswers
from app.answering.question_options import Asked
from app.answering.search import CollectionSearch
from app.library import Library
from app.models import Models
from app.prompt import check_question
from ragcache.types import Segment


class QuestionPrompts:
    """Loads the models; the log tells of one on which linking does not work."""

    def __init__(self, library: Library, models: Models):
        self.library = library
        self.answering = Answering.over(models, library.catalog)
        self._models = models
        self._searching = CollectionSearch(library, models)
        GatedAnswers(models).judge(measure=False)

    def of(self, question: str, collection: str, max_tokens: int) -> Sequence[Segment]:
        """`max_tokens`: of its answer. Raises RagcacheError for what is too long, or can be searched for nowhere."""
        with self._models.answering():
            searched = self._searching.collection(collection)
            found = self._searching.run(searched, check_question(question), Asked()).chunks
        return self.answering.prompt(AnswerRequest(question, found, max_tokens=max_tokens)).segments
