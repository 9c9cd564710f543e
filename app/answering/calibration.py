"""How far answers over a collection's KV are from a full recompute, measured on questions to its own texts: what
sentences of them mean. A sentence that is asked by itself has answers that are much farther off (docs/log.md).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from app.answering.divergence import forced_answers
from app.answering.question_prompts import QuestionPrompts
from app.ingestion import IngestResult
from app.library import Library
from app.library.catalog import Catalog
from app.library.fidelity import Calibration
from app.library.learning import TROUBLE
from app.models import Models
from app.models.sentences import sentences_of
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.forcing import ForcedAnswers
from ragcache.errors import ConfigError, RagcacheError
from ragcache.linking.auto import MOST, Auto
from ragcache.planning import Plan, plan_prompt
from ragcache.types import Segment
from retriever.balance import asking

QUESTIONS = 8
FEWEST = 4  # questions; of fewer, figures would be chance
STEPS = 32  # tokens of an answer: the first ones are farther off
ASKED = 'What does this mean: "{}"?'
RATIOS = (0.01, 0.04, MOST)  # of the tokens are repaired
POWERS = (0.1, 1.5)  # what is found beyond is chance
_LOOKED_AT = 20  # chunks for each question: many have no sentence, or no KV
_SEED = 0
MOST_TOKENS = 15_000  # that are computed for it, or those of one prompt
Floats = npt.NDArray[np.float64]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Measured:
    predicted: float  # what is left, by a scale and a power of 1
    kl: float


def calibrate(library: Library, models: Models, name: str) -> Calibration:
    """Raises ConfigError where it cannot be measured: by another engine, or with too few texts that have KV."""
    collection = library.catalog.collections.get(name)
    if library.settings.engine != "torch":
        raise ConfigError("how far answers are off is measured by the torch engine: give --engine torch")
    prompts = QuestionPrompts(library, models)
    answering = prompts.answering
    engine = answering.cache.engine
    forcing = forced_answers(answering.cache, STEPS, answering.template.stop)
    tokens = 0
    measured: list[tuple[_Measured, ...]] = []
    for segments in asked_of_its_texts(prompts, name):
        if cached_plan(forcing, segments) is None:
            continue
        if (one := _measure(forcing, segments)) is not None:
            measured.append(one)
        tokens += 2 * (sum(map(len, segments)) + STEPS)  # with all links, which come to less than one more recompute
        if len(measured) == QUESTIONS or tokens >= MOST_TOKENS:
            break
    if len(measured) < FEWEST:
        raise ConfigError(
            f"collection {name!r} has too few texts with sentences and KV to ask questions about: {len(measured)} "
            f"prompts could be measured, and it takes {FEWEST}"
        )
    scale, power = fitted(measured)
    if not (math.isfinite(scale) and math.isfinite(power)):
        raise ConfigError(f"answers of collection {name!r} are no numbers (scale {scale}, power {power}): run `doctor`")
    pairs = [one for row in measured for one in row]
    return Calibration(
        scale=scale,
        power=power,
        kl=float(np.mean([row[-1].kl for row in measured])),
        rank=_rank_correlation([one.predicted for one in pairs], [one.kl for one in pairs]),
        questions=len(measured),
        chunks=library.catalog.source(collection).position().live,
        fingerprint=engine.spec.fingerprint,
        system=answering.template.system().hash,
    )


def keep(catalog: Catalog, name: str, measured: Calibration) -> None:
    """The linker that the collection was tuned to stays, where nothing new was aimed at."""
    collection = catalog.collections.get(name)
    known = Calibration.of(collection) if measured.linker is None else None
    if known is not None and known.counts_for(measured.fingerprint, measured.system):
        measured = replace(measured, linker=known.linker, target=known.target)
    catalog.collections.set_fidelity(collection, measured.as_json())


def calibrate_if_due(library: Library, models: Models, result: IngestResult) -> None:
    """After an ingest that was long enough for this to be no matter: where nobody has measured what is there now. What
    goes wrong is told to the log alone: answers do without it.
    """
    try:
        if not isinstance(models.cache.engine, TorchEngine):
            return
        collection = library.catalog.collections.get(result.collection)
        known, live = Calibration.of(collection), library.catalog.source(collection).position().live
        fingerprint, system = models.cache.engine.spec.fingerprint, models.template.system().hash
        if known is None or not known.counts_for(fingerprint, system) or live >= 2 * known.chunks:
            keep(library.catalog, collection.name, calibrate(library, models, collection.name))
    except TROUBLE as error:
        log.warning("how far answers of collection %r are off could not be measured: %s", result.collection, error)


def asked_of_its_texts(prompts: QuestionPrompts, name: str) -> Iterator[Sequence[Segment]]:
    """Prompts, the same for the same chunks."""
    catalog = prompts.library.catalog
    collection, chance = catalog.collections.get(name), np.random.default_rng(_SEED)
    for chunk in chance.permutation(catalog.source(collection).live_ids({}))[: QUESTIONS * _LOOKED_AT].tolist():
        for found in catalog.chunks.found([chunk]):
            sentences = sentences_of(found.chunk.text)
            places = asking(sentences)
            if not places:
                continue
            question = ASKED.format(sentences[places[int(chance.integers(len(places)))]].strip())
            try:
                yield prompts.of(question, collection.name, STEPS)
            except RagcacheError as error:  # a sentence that is no question: too long, or of nothing that is searched
                log.debug("no question: %s", error)


def cached_plan(forcing: ForcedAnswers, segments: Sequence[Segment]) -> Plan | None:
    """None where a chunk of the prompt is not cached."""
    plan = plan_prompt(segments, forcing.engine.spec.fingerprint, forcing.source.store, others=False)
    return plan if plan.chunks and len(plan.cached) == len(plan.chunks) else None


def _measure(forcing: ForcedAnswers, segments: Sequence[Segment]) -> tuple[_Measured, ...] | None:
    """By `RATIOS`; None for a prompt whose KV is not there, or of which nothing can be repaired."""
    ids, expected = forcing.full(segments)
    found = []
    for ratio in RATIOS:
        made = forcing.prefilled(segments, Auto(ratio=ratio, scale=1.0, power=1.0))
        if made.report.computed or not made.report.predicted:
            return None
        found.append(_Measured(made.report.predicted, forcing.divergence(made, ids, expected)))
    return tuple(found)


def fitted(measured: Sequence[Sequence[_Measured]]) -> tuple[float, float]:
    """Scale and power by which predictions have the measured means, at each share that was repaired."""
    left = np.array([[one.predicted for one in row] for row in measured])  # [questions, shares]
    kl = np.array([[one.kl for one in row] for row in measured]).mean(axis=0).clip(1e-6)
    power = 1.0
    for _ in range(20):  # the mean of powers is not the power of means
        spread = np.log((left**power).mean(axis=0)) / power
        slope = float(np.polyfit(spread, np.log(kl), 1)[0]) if np.ptp(spread) > 1e-6 else 1.0
        power = float(np.clip(slope, *POWERS))
    scale = float(kl.mean() / (left**power).mean())
    return scale, power


def _rank_correlation(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's; ties share a rank."""
    ranks = [_ranks(np.asarray(one)) for one in (left, right)]
    if any(np.ptp(one) == 0 for one in ranks):
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2.0)[place]
