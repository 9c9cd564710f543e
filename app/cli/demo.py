"""`ragcache demo`: three sample documents, one question, answered with cached KV and without."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import perf_counter

import app.samples
from app.answering.answerer import Answering, AnswerRequest
from app.answering.pipeline import RagPipeline
from app.captions import report_line
from app.cli.flags import configured
from app.models import Models
from app.models.folders import resolve_embedder
from app.settings import Settings
from ragcache.report import COMPUTED, FULL
from ragcache.store import KVStore
from retriever.fingerprint import fingerprint

CHUNKS = 5
ANSWER_TOKENS = 64
QUESTION = "Who designed the lighthouse?"
SAMPLES = Path(app.samples.__file__).parent
NEXT = """\
Next: `.venv/bin/ragcache ui` opens the chat in the browser, over documents that you drop there.
`ragcache ingest FOLDER` reads documents of your own, `ragcache ask` and `ragcache chat` answer from them.
`ragcache doctor` checks this installation; `ragcache bench quality --data …` measures what reuse costs in answers, on
questions of your own, and `ragcache bench ttft` what it saves."""


@configured("model", "device", "dtype", "cache_dir")
def demo(settings: Settings) -> None:
    """Ingest a small corpus, ask questions, and show what reuse saves."""
    run(settings)


def run(settings: Settings) -> None:
    print(f"Preparing the model {settings.model} (converted once, on first use) …", flush=True)
    with RagPipeline(own_settings(settings)) as pipeline:
        assert pipeline.answering  # both models are loaded
        print("Reading three sample documents, and computing their KV where it is not stored …", flush=True)
        pipeline.ingest(SAMPLES, glob=["*.md"], prune=True, workers=1)
        request = found(pipeline)
        warm_up(pipeline, request)
        # A store that is opened anew has nothing in RAM, as after a restart.
        cold = Models(settings).store if settings.disk_bytes else pipeline.models.store
        print(f"\nQuestion: {QUESTION}\nAnswer:   ", end="", flush=True)
        answering = over(pipeline, cold)
        with answering.start(request) as stream:
            for piece in stream:
                print(piece, end="", flush=True)
        print(flush=True)
        without = answering.start(replace(request, linker=FULL, max_tokens=1)).answer.report
        for citation in stream.answer.citations:
            print(f"[{citation.number}] {citation.place}")
        print(f"\n{report_line(stream.answer.report, without)}\n\n{NEXT}")


def own_settings(settings: Settings) -> Settings:
    """A catalog of its own, beside the KV and as easily made again; documents of the user's are not touched.

    On the torch engine: vLLM's prefix cache would answer the run that is meant to be without a cache. Greedily: whoever
    runs it again shall see the same. With KV, whatever the settings say of it: it shows what that saves.
    """
    name = f"demo-{fingerprint(resolve_embedder(settings.embedder))[:12]}"  # vectors of two embedders do not mix
    own = {"data_dir": settings.cache_dir / name, "database_url": None, "collection": "demo"}
    return settings.model_copy(update={**own, "engine": "torch", "temperature": 0.0, "kv": "auto"})


def found(pipeline: RagPipeline) -> AnswerRequest:
    """The question with its chunks. The second search counts: the first one starts the embedder."""
    pipeline.retrieve(QUESTION, top_k=CHUNKS)
    started = perf_counter()
    chunks = pipeline.retrieve(QUESTION, top_k=CHUNKS)
    return AnswerRequest(QUESTION, chunks, max_tokens=ANSWER_TOKENS, seconds={"retrieve": perf_counter() - started})


def over(pipeline: RagPipeline, store: KVStore) -> Answering:
    """Answers from another store, in which they leave nothing."""
    cache = pipeline.models.language.cache(store, keep_missed=False)
    return replace(pipeline.answering, cache=cache)


def warm_up(pipeline: RagPipeline, request: AnswerRequest) -> None:
    """What only a first call pays would blur the comparison, so both sides run once before it."""
    answering, short = over(pipeline, pipeline.models.store), replace(request, max_tokens=2)
    first = answering.start(short).answer.report
    if any(chunk.tier == COMPUTED for chunk in first.chunks):
        # Documents that were read with another model, or where there is no disk for KV, have none: an answer stores it.
        assert pipeline.answering.start(short).answer
        pipeline.settle()
    assert answering.start(replace(short, linker=FULL)).answer
