"""Whether linking works on a model at all: its first answers are compared with those of a full recompute, on prompts of
the samples that come with the program. What was found counts for the model's files, and for the linker.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from time import perf_counter

from app.answering.divergence import divergence_of
from app.answering.quality import LIMIT
from app.models.loading import LoadedModel
from app.prompt import PromptTemplate
from app.samples import read_samples
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import FAULTS, reason_of
from ragcache.linking.base import Linker
from ragcache.store import open_store
from ragcache.types import Chunk, Segment

KIND = "soundness"  # of a record
STEPS = 16  # tokens of each answer
CHUNKS, OF_EACH = 4, 5  # in a prompt; paragraphs of a sample, which are chunks
LEAST = 200  # characters of a paragraph
QUESTIONS = (
    "What is told about the first of these places?",
    "Who is named in the excerpts, and what do they do?",
    "What happens at night?",
)
MOST_S = 30.0  # that it may take
ROOM = 8 << 30  # bytes, of which some hundred chunks take little
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Soundness:
    kl: float | None  # of the built-in prompts, in nats a token; None where that takes too long to be found out

    @property
    def sound(self) -> bool:
        return self.kl is None or self.kl <= LIMIT  # false for nan

    @property
    def warning(self) -> str:
        return (
            f"answers are computed without the cache: when this model was checked, those over it were {self.kl:.2f} "
            f"nats a token from those without, and {LIMIT} are allowed"
        )


def known_soundness(model: LoadedModel, linker: Linker) -> Soundness | None:
    """As an earlier start has found it."""
    if model.files is None:
        return None
    kept = model.settings.records.read(KIND, model.files.folder, **_facts(model, linker))
    try:
        return None if kept is None else Soundness(None if kept["kl"] is None else float(kept["kl"]))
    except (KeyError, TypeError, ValueError):
        return None


def measured_soundness(model: LoadedModel, linker: Linker) -> Soundness | None:
    """Known, or found out now, which takes a few prompts. None where it cannot be told: by a vLLM of its own, whose
    store is not ours to change, or where a prompt of the samples is too long for the model.
    """
    if (known := known_soundness(model, linker)) is not None:
        return known
    if linker.recompute_all:
        return None
    prompts = list(_prompts(model.template, documents := _documents(model.template)))
    longest = max(sum(map(len, prompt)) for prompt in prompts) + STEPS
    if longest > model.engine.spec.max_tokens:
        return None
    try:
        with model.beside(open_store(ram_bytes=ROOM, disk_bytes=0, codec="raw"), linker) as cache:
            verdict = None if cache is None else _measured(model, cache, documents, prompts)
    except FAULTS as error:  # a model that cannot be checked serves all the same
        log.warning("whether linking works on this model could not be found out: %s", reason_of(error))
        return None
    if verdict is not None and model.files is not None:
        facts = _facts(model, linker)
        model.settings.records.write(KIND, model.files.folder, asdict(verdict), model.files.basis, **facts)
    return verdict


def _measured(
    model: LoadedModel, cache: ChunkCache, documents: Sequence[Sequence[Chunk]], prompts: Sequence[Sequence[Segment]]
) -> Soundness | None:
    ends = perf_counter() + MOST_S
    measured, found = divergence_of(cache, STEPS, model.template.stop), list[float]()
    for step in chain(_captured(cache, model.template, documents), prompts):
        if perf_counter() > ends:
            log.info("whether linking works on this model was not found out: it takes longer than %g s", MOST_S)
            return Soundness(None)
        found += measured.of(step, [cache.linker]) if step else []
    if len(found) < len(prompts):
        return None
    kl = sum(found) / len(found)
    log.info("answers over caches are %.3f nats a token from a full recompute, of this model", kl)
    return Soundness(kl)


def _captured(
    cache: ChunkCache, template: PromptTemplate, documents: Sequence[Sequence[Chunk]]
) -> Iterator[Sequence[Segment]]:
    """They are captured one by one."""
    for document in documents:
        for _ in cache.ingest(template.system(), document):
            yield ()


def _facts(model: LoadedModel, linker: Linker) -> dict[str, str]:
    system, context = model.template.system().hash, str(model.settings.context_chunks)
    facts = {"linker": repr(linker), "dtype": str(model.engine.spec.dtype), "system": system, "context": context}
    return facts if model.engine.name == TorchEngine.name else facts | {"engine": model.engine.name}


def _documents(template: PromptTemplate) -> list[list[Chunk]]:
    found = []
    for text in read_samples().values():
        paragraphs = [one for one in text.split("\n\n") if len(one) >= LEAST]
        found.append([template.chunk(one) for one in paragraphs[:OF_EACH]])
    return found


def _prompts(template: PromptTemplate, documents: Sequence[Sequence[Chunk]]) -> Iterator[Sequence[Segment]]:
    """Of paragraphs that no one document has together, and that stand behind others than they were computed behind."""
    for turn, question in enumerate(QUESTIONS):
        places = [(turn + place, turn + 2 * place) for place in range(CHUNKS)]
        chunks = [documents[document % len(documents)][chunk % OF_EACH] for document, chunk in places]
        yield (template.system(), *chunks, template.question(question))
