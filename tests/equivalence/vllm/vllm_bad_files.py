"""Cache files that are bad or gone: the answer of no file at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.tiny import make_chunks, make_question, make_system

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
PROMPT: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]


@pytest.fixture(scope="module")
def on_disk(open_pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Path]]:
    root = tmp_path_factory.mktemp("kv")
    with open_pair(store=open_store(root, ram_bytes=0, codec="raw"), block_size=32) as opened:
        yield opened, root


@pytest.mark.parametrize("harm", ["flipped", "cut short", "gone"])
def test_a_bad_file_gives_the_answer_of_no_file(on_disk: tuple[Pair, Path], harm: str) -> None:
    pair, root = on_disk
    list(pair.torch.ingest(SYSTEM, DOCUMENT))
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size > 50_000)
    assert len(files) >= len(DOCUMENT)
    for path in files:
        if harm == "gone":
            path.unlink()
        else:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data if harm == "flipped" else data[: len(data) // 2])
    generation = pair.vllm.generate(PROMPT, max_tokens=12)
    assert list(generation) == list(pair.torch.generate(PROMPT, max_tokens=12, linker="full"))
    assert all(chunk.tier == COMPUTED for chunk in generation.report.chunks)
    assert bool(generation.report.incidents) is (harm != "gone")
    pair.engine.check_integrity()
