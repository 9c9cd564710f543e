"""`ragcache serve`, `ragcache ui` over it, and a browser in front of that."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import numpy as np
from tqdm import tqdm

from app.client.address import NamedServer
from app.client.connection import ServerConnection
from app.client.files import create_collection, outcome, upload
from app.library.catalog import open_catalog
from app.library.catalog.records import Message, NewMessage
from app.models.folders import resolve_model
from app.settings import Settings
from benchmarks.corpus import read_texts
from benchmarks.folder import bench_folder
from benchmarks.output import Row, publish
from benchmarks.serve.child import COMMAND, serving
from benchmarks.ui import UiBenchOptions
from benchmarks.ui.browser import ChatTab, browser_program, chat_tab
from ragcache.errors import ConfigError

COLLECTION = "texts"
WARM = 2  # questions and reloads that are not counted
ASKED_WORDS = 8  # of a sentence of the texts
STARTING_S, LOOK_S = 120.0, 0.1
_URL = re.compile(r"The chat is at (http://\S+)")
_SENTENCE = re.compile(r"[A-Z][^.!?\n|#]{40,}(?=[.!?])")


def main(settings: Settings, options: UiBenchOptions, out: Path) -> None:
    with bench_folder(settings.cache_dir) as folder:
        run(settings, read_texts(options.data), options, folder, out)


def run(settings: Settings, texts: Sequence[str], options: UiBenchOptions, folder: Path, out: Path | None) -> list[Row]:
    asked, browser = questions(texts, WARM + options.questions), browser_program(options.browser)
    model, home = str(resolve_model(settings.model, settings.cache_dir)), folder / "server"
    own = {"model": model, "max_tokens": str(options.answer_tokens)}
    with serving(settings, home, **own) as child:
        _ingest(NamedServer.read(child.url, None, "its address", "", ""), texts, folder)
        with _page(child.url, folder / "page.log") as url, chat_tab(browser, url) as tab:
            at_home = settings.model_copy(update={"data_dir": home / "data", "database_url": None})
            painted = [_asked(tab, question) for question in tqdm(asked, desc="questions")][WARM:]
            rows = _rows(tab, at_home, painted, options)
    told = {name: getattr(settings, name) for name in ("model", "engine", "dtype", "threads")}
    publish(options.settings() | told, rows, out)
    return rows


def questions(texts: Sequence[str], wanted: int) -> list[str]:
    """Of the texts' own sentences, spread over all of them. Raises ConfigError where there are not enough."""
    found = [match[0] for text in texts for match in _SENTENCE.finditer(text)]
    if len(found) < wanted:
        raise ConfigError(f"the texts have {len(found)} plain sentences, and {wanted} are asked: give more --data")
    chosen = [found[place * len(found) // wanted] for place in range(wanted)]
    return [f"What else is told where it says “{' '.join(one.split()[:ASKED_WORDS])}”?" for one in chosen]


def _rows(tab: ChatTab, settings: Settings, painted: Sequence[float], options: UiBenchOptions) -> list[Row]:
    with open_catalog(settings) as catalog:
        collection = catalog.collections.get(COLLECTION)
        made = catalog.conversations.all(collection)  # the newest first
        answers = [catalog.conversations.messages(one.id)[-1] for one in made[: len(painted)]]
        engine = [1e3 * float(_report(one)["ttft_s"]) for one in reversed(answers)]
        long = catalog.conversations.create(collection, "long")
        pairs = [NewMessage("user", "And what else?"), _again(answers[0])]
        catalog.conversations.add(long.id, pairs * (options.messages // 2))
    over = [one - other for one, other in zip(painted, engine, strict=True)]
    rows: list[Row] = [
        _row("first_word", 0, painted) | {"engine_p50_ms": float(np.median(engine))} | _spread(over, "over_")
    ]
    for conversation, messages in ((made[0].id, 2), (long.id, 2 * (options.messages // 2))):
        tab.open(conversation)
        reloads = [tab.reload() for _ in range(WARM + options.reloads)][WARM:]
        rows += [_row("reload", messages, reloads), _row("keystroke", messages, tab.type(options.keys))]
    return rows


def _asked(tab: ChatTab, question: str) -> float:
    tab.begin()
    return tab.ask(question)


def _report(answer: Message) -> dict[str, Any]:
    if not answer.report or not answer.report.get("ttft_s"):
        raise ConfigError("an answer without a word: choose another model or text")
    return dict(answer.report)


def _again(one: Message) -> NewMessage:
    return NewMessage("assistant", one.content, one.citations, one.report, one.support, one.notes)


def _row(what: str, messages: int, seen: Sequence[float]) -> dict[str, Any]:
    row: dict[str, Any] = {"what": what, "messages": messages, "n": len(seen)} | _spread(seen)
    return row | dict.fromkeys(("engine_p50_ms", "over_p50_ms", "over_p95_ms"))


def _spread(seen: Sequence[float], of: str = "") -> dict[str, float]:
    return {f"{of}p50_ms": float(np.median(seen)), f"{of}p95_ms": float(np.quantile(seen, 0.95))}


def _ingest(server: NamedServer, texts: Sequence[str], folder: Path) -> None:
    connection = ServerConnection(server)
    create_collection(connection, COLLECTION)
    for place, text in enumerate(tqdm(texts, desc="documents")):
        (path := folder / f"{place}.md").write_text(text, "utf-8")
        job = outcome(connection, upload(connection, COLLECTION, path))
        if job["state"] != "done":
            raise ConfigError(f"document {place}: {job['state']}: {job['error']}")


@contextmanager
def _page(server: str, log: Path) -> Iterator[str]:
    """Its address. Raises ConfigError where it does not start."""
    with log.open("wb") as told:
        argv = ["ui", "--server", server, "--no-browser", "--port", "0"]
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *argv], stdout=told, stderr=told, cwd=log.parent)
    try:
        deadline = monotonic() + STARTING_S
        while not (found := _URL.search(said := log.read_text("utf-8", "replace"))):
            if process.poll() is not None or monotonic() > deadline:
                raise ConfigError(f"the page did not start: {said.strip()}")
            sleep(LOOK_S)
        yield found[1]
    finally:
        process.terminate()
        process.wait()
