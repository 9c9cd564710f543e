"""One server in this process, asked over the loopback and passed by, by turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any

import httpx2
import numpy as np
from tqdm import tqdm

from app.chat.chat import ChatOptions
from app.chat.messages import CachePart, ChatTurn, TextPart
from app.server.process import ServerProcess, bound
from app.server.service import Service
from app.server.web import create_app
from app.settings import Settings
from benchmarks.corpus import read_texts, sized_splitter
from benchmarks.folder import bench_folder
from benchmarks.output import Row, common_settings, publish
from benchmarks.overhead import OverheadBenchOptions
from benchmarks.overhead.client import PATIENCE_S, OtherProcess, beside
from ragcache.errors import ConfigError, ModelError
from ragcache.sampling import Sampling

CACHES = "/v1/context_caches"
QUESTION = "Question {number}: what do these passages have in common?"
WARM = 3
POLL_S = 0.1


def main(settings: Settings, options: OverheadBenchOptions, out: Path) -> None:
    with bench_folder(settings.cache_dir) as folder:
        run(settings, read_texts(options.data), options, folder, out)


def run(
    settings: Settings, texts: Sequence[str], options: OverheadBenchOptions, folder: Path, out: Path | None
) -> list[Row]:
    own = {"data_dir": folder / "data", "cache_dir": folder / "cache", "database_url": None, "remote": ""}
    # Whatever is cached is linked, so that both do the same.
    service = Service(settings.model_copy(update=own | {"link_when": "always", "linker": options.linker}))
    with _served(service) as client, beside(str(client.base_url)) as other:
        told = common_settings(service.pipeline.models.language)
        rows = [_row(service, client, other, texts, tokens, options) for tokens in options.tokens]
    publish(options.settings() | told, rows, out)
    return rows


@contextmanager
def _served(service: Service) -> Iterator[httpx2.Client]:
    sockets = bound("127.0.0.1", 0)
    server = ServerProcess(create_app(service), service.turns, PATIENCE_S)
    thread = threading.Thread(target=server.run, args=(sockets,), name="server")
    thread.start()
    try:
        url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
        with httpx2.Client(base_url=url, timeout=PATIENCE_S, trust_env=False) as client:
            while not server.started or client.get("/ready").status_code != httpx2.codes.OK:
                if not thread.is_alive():
                    raise ModelError("the server did not start: see what it logged")
                sleep(POLL_S)
            yield client
    finally:
        server.should_exit = True
        thread.join()


def _row(
    service: Service,
    client: httpx2.Client,
    other: OtherProcess,
    texts: Sequence[str],
    tokens: int,
    options: OverheadBenchOptions,
) -> Row:
    caches, cached = _caches(service, client, texts, tokens, options)
    own: list[float] = []
    served: list[float] = []
    for turn in tqdm(range(WARM + options.rounds), desc=f"{tokens} tokens"):
        for place, ask in enumerate((_engine, _server) if turn % 2 else (_server, _engine)):
            # A text of its own, of one length: nothing of the question was there before.
            seconds = ask(service, other, caches, QUESTION.format(number=1000 + 2 * turn + place))
            if turn >= WARM:
                (own if ask is _engine else served).append(seconds)
    over = [1e3 * (one - other) for one, other in zip(served, own, strict=True)]
    return {
        "tokens": tokens,
        "cached": cached,
        "engine_ttft_ms": 1e3 * median(own),
        "server_ttft_ms": 1e3 * median(served),
        "over_ms": median(over),
        "over_p90_ms": float(np.quantile(over, 0.9)),
    }


def _caches(
    service: Service, client: httpx2.Client, texts: Sequence[str], tokens: int, options: OverheadBenchOptions
) -> tuple[list[str], int]:
    """Of so many tokens together. Raises ConfigError where there are not enough."""
    template = service.pipeline.models.template
    splitter, found, left = sized_splitter(template, options.chunk_tokens), list[str](), tokens
    for text in texts:
        for piece in splitter.split(text):
            if left > 0:
                made = client.post(CACHES, json={"texts": [text[piece.start : piece.end]]}).raise_for_status().json()
                found.append(made["id"])
                left -= sum(client.get(f"{CACHES}/{made['id']}").json()["chunks"])
    if left > 0:
        raise ConfigError(f"the texts have {tokens - left:,} tokens, and {tokens:,} are asked: give more --data")
    return found, tokens - left


def _engine(service: Service, other: OtherProcess, caches: Sequence[str], question: str) -> float:
    """As the server's routes ask it, without them."""
    turns = [ChatTurn("user", (*map(CachePart, caches), TextPart(question)))]
    options = ChatOptions(2, Sampling())
    started = perf_counter()
    with closing(service.pipeline.chat.start(turns, options, service.contexts.resolver(""))) as stream:
        next(stream)
        return perf_counter() - started


def _server(service: Service, other: OtherProcess, caches: Sequence[str], question: str) -> float:
    parts = [{"type": "context_cache", "cache_id": one} for one in caches]
    body: dict[str, Any] = {
        "model": service.model,
        "messages": [{"role": "user", "content": [*parts, {"type": "text", "text": question}]}],
        "max_tokens": 2,
        "temperature": 0,
        "stream": True,
    }
    return other.first_token(body)
