"""Run by test_killed.py: an ingest that is killed again and again, until a folder's new state is in.

A script of its own, so that each ingest is a fork of a process that has imported everything and runs no threads: what
is killed is a real process that runs the real command, only sooner ready than one that starts from nothing.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sqlalchemy import text as sql

import app.cachecare
import app.cli
import app.ingestion.draft
import app.ingestion.ingest
from app.compose import opened
from app.library.catalog import open_catalog
from app.models.loading import load_store
from app.settings import Settings, load_settings
from ragcache.types import VariantKey

NAME = "shelf"
# What an ingest imports late.
PRELOADED = (
    "faiss", "nltk", "sentence_transformers", "tokenizers", "transformers.models.auto.tokenization_auto",
    "transformers.models.bert.modeling_bert", "transformers.models.llama.modeling_llama",
    "retriever.keyword_index", "retriever.vectors.base", "splitter.fixed", "splitter.units",
)  # fmt: skip
Books = dict[str, tuple[str, list[tuple[Any, ...]]]]  # by source: text, and chunks without their ids


def command(settings: Settings, docs: Path, *flags: str) -> list[str]:
    folders = ["--data-dir", str(settings.data_dir), "--cache-dir", str(settings.cache_dir)]
    return ["ragcache", "ingest", str(docs), "-c", NAME, "--prune", "--workers", "1", *flags, *folders]


def started(argv: list[str]) -> tuple[int, int]:
    """A process that runs the command -> its id, and a descriptor that ends with it, after a byte as it sets out."""
    mine, its = os.pipe()
    pid = os.fork()
    if pid:
        os.close(its)
        return pid, mine
    status = 1
    try:  # a child must never return into its parent's code
        os.close(mine)
        run = app.ingestion.ingest.Ingest.run

        def told(*arguments: Any) -> Any:
            os.write(its, b".")
            return run(*arguments)

        app.ingestion.ingest.Ingest.run = told  # type: ignore[method-assign]  # in this child alone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.argv = argv
        app.cli.main()
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        if status:
            traceback.print_exc()
        os._exit(status)


def finished(argv: list[str]) -> float:
    """Run the command to its end -> the seconds from setting out."""
    pid, pipe = started(argv)
    assert os.read(pipe, 1) == b"."
    begin = perf_counter()
    assert os.waitpid(pid, 0)[1] == 0
    os.close(pipe)
    return perf_counter() - begin


def killed(argv: list[str], after: float) -> bool:
    """Whether it was killed, and not done before."""
    pid, pipe = started(argv)
    assert os.read(pipe, 1) == b"."
    select.select([pipe], [], [], after)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    os.close(pipe)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL, status
    return status != 0


def books(settings: Settings) -> Books:
    """What a reader sees; half of a document would show."""
    found: Books = {}
    with open_catalog(settings) as catalog:
        catalog.check_integrity()
        collection = catalog.collections.get(NAME)
        for document in catalog.documents.all(collection):
            assert document.state == "ready", document.error
            chunks = catalog.chunks.of_document(document.id)
            shown = [(one.ordinal, one.start, one.end, one.text, one.tokens, one.token_hash) for one in chunks]
            found[document.source] = (catalog.documents.layout(document.id).text, shown)
        with catalog.database.reading() as connection:
            counted = connection.execute(sql("SELECT count(*) FROM chunks")).scalar_one()
    assert counted == sum(len(chunks) for _, chunks in found.values())
    return found


def write(docs: Path, state: int) -> None:
    """The folder in one of its states: some files stay, some change, some come and some go."""
    for number in range(12):
        path = docs / f"{number:02}.txt"
        if number % 5 == 3 and number % 2 == state % 2:
            path.unlink(missing_ok=True)
            continue
        version = state if number % 5 in (1, 2) else 0
        lines = [f"In year {line} of book {number} the lamp burned {version + line} nights." for line in range(16)]
        said = "\n\n".join(lines)
        if not path.exists() or path.read_text() != said:
            path.write_text(said)


def assert_derived(settings: Settings, kv: bool) -> None:
    """Indexes follow SQL; every chunk has KV, and after a pruning nothing else has any."""
    with opened(settings) as (library, models):
        collection = library.catalog.collections.get(NAME)
        searcher = library.searcher(collection)
        searcher.catch_up()
        searcher.vectors.check_integrity()
        searcher.keywords.check_integrity()
        for ids, _, vectors in library.catalog.source(collection).added(0):
            np.testing.assert_allclose(searcher.vectors.vectors(ids), vectors, atol=0.01)
        assert searcher.vectors.live == searcher.keywords.live == library.catalog.source(collection).position().live
        if not kv:
            return
        app.cachecare.prune(library, models)
        known = library.catalog.collections.get(NAME)
        assert known.engine_fingerprint and known.system_hash
        hashes = library.catalog.chunks.hashes()
        live = {VariantKey(known.engine_fingerprint, known.system_hash, (), one).family for one in hashes}
        there = {path.parent.name for path in (settings.cache_dir / "kv").glob("*/*/*/*.kv")}
        system = VariantKey(known.engine_fingerprint, "", (), known.system_hash).family
        assert there == live | {system}, (len(there - live), len(live - there))
        store = load_store(settings)
        assert store.verify() == []
        store.check_integrity()
        assert list(settings.cache_dir.rglob("*.tmp")) == []


def campaign(folder: Path, flags: list[str], kills: int, seed: int) -> int:
    """So many kills on the way between the states -> how many ingests came to their end by themselves."""
    chance, docs = random.Random(seed), folder / "docs"
    docs.mkdir(parents=True)
    clean, hurt = (load_settings(None, data_dir=folder / name / "data", cache_dir=folder / name) for name in "ab")
    done, state, before, survived = 0, 0, Books(), 0
    while done < kills:
        write(docs, state)
        seconds = finished(command(clean, docs, *flags))
        wanted = books(clean)
        for _ in range(kills - done):
            if not killed(command(hurt, docs, *flags), chance.uniform(0, 0.7 * seconds)):
                survived += 1
                break
            done += 1
            for source, book in books(hurt).items():
                assert book in (wanted.get(source), before.get(source)), source
        finished(command(hurt, docs, *flags))
        assert books(hurt) == wanted
        assert_derived(hurt, "on-use" not in flags)
        state, before = state + 1, wanted
    return survived


def main(folder: Path) -> None:
    for name in PRELOADED:
        import_module(name)
    plain = campaign(folder / "plain", ["--kv", "on-use"], 40, seed=1)
    kv = campaign(folder / "kv", [], 10, seed=2)
    print(json.dumps({"survived": plain + kv}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
