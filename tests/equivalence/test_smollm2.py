"""The identities on a real model: SmolLM2-135M in float32."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.selfcheck import self_check
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.torch.generation import Prefilled
from ragcache.report import COMPUTED
from ragcache.store import open_store
from ragcache.types import Chunk, Segment, System, Text
from tests.tiny import assert_close, stock

pytestmark = pytest.mark.slow

SYSTEM = "<|im_start|>system\nAnswer from the passages.<|im_end|>\n<|im_start|>user\n"
PASSAGES = [
    "The harbour of Marsdiep froze in the winter of 1795. The fleet lay at anchor off Den Helder, fast in the ice.\n",
    "French hussars crossed the ice at night, their horses' hooves wrapped in cloth, and reached the ships unheard.\n",
    "The captains gave up fourteen ships of the line without a fight. No sailor and no horse was lost in it.\n",
    "A painting of the scene hangs in Versailles; historians doubt that the riders ever had to draw their sabres.\n",
]
QUESTION = "How many ships were given up?<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def engine(smollm2: Path) -> TorchEngine:
    return TorchEngine.from_folder(smollm2, torch.float32, torch.device("cpu"))


@pytest.fixture(scope="module")
def texts(smollm2: Path) -> tuple[System, list[Chunk], Text]:
    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    system, *passages, question = (
        tuple(tokenizer.encode(text, add_special_tokens=False)) for text in (SYSTEM, *PASSAGES, QUESTION)
    )
    return System(system), [Chunk(ids) for ids in passages], Text(question)


@pytest.fixture(scope="module")
def ingested(
    engine: TorchEngine, texts: tuple[System, list[Chunk], Text], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("ingested")
    assert len(list(open_cache(engine, folder).ingest(texts[0], texts[1]))) == len(PASSAGES)
    return folder


def open_cache(engine: TorchEngine, folder: Path) -> ChunkCache:
    return ChunkCache(engine, open_store(folder, ram_bytes=0, codec="raw"), "naive")


@pytest.fixture
def cache(engine: TorchEngine, ingested: Path, tmp_path: Path) -> ChunkCache:
    shutil.copytree(ingested, tmp_path, dirs_exist_ok=True)
    return open_cache(engine, tmp_path)


@pytest.fixture
def document(texts: tuple[System, list[Chunk], Text]) -> list[Segment]:
    system, chunks, question = texts
    return [system, *chunks, question]


@pytest.fixture
def reversed_document(texts: tuple[System, list[Chunk], Text]) -> list[Segment]:
    system, chunks, question = texts
    return [system, *reversed(chunks), question]


def assert_equals_stock(prefilled: Prefilled, engine: TorchEngine) -> None:
    n, expected = len(prefilled.plan.ids), stock(engine.stock(), prefilled.plan.ids)
    assert_close(prefilled.logits, expected.logits[-1])
    assert_close(prefilled.buffer.k[:, :, :n], expected.k)
    assert_close(prefilled.buffer.v[:, :, :n], expected.v)


def test_the_self_check_passes(engine: TorchEngine) -> None:
    checks = self_check(engine)
    assert all(check.error < 1e-4 for check in checks), checks


@pytest.mark.parametrize("linker", ["full", "query:ratio=1", "cacheblend:ratio=1"])
def test_all_repaired_equals_stock(
    cache: ChunkCache, engine: TorchEngine, reversed_document: list[Segment], linker: str
) -> None:
    prefilled = prefill_prompt(cache, reversed_document, linker=linker)
    assert_equals_stock(prefilled, engine)


def test_the_documents_own_order_needs_no_repair(
    cache: ChunkCache, engine: TorchEngine, document: list[Segment], reversed_document: list[Segment]
) -> None:
    prefilled = prefill_prompt(cache, document)
    assert all(chunk.exact for chunk in prefilled.report.chunks)
    assert prefilled.report.part == 0.0
    assert_equals_stock(prefilled, engine)
    with pytest.raises(AssertionError, match="of the largest"):  # another order does
        assert_equals_stock(prefill_prompt(cache, reversed_document), engine)


def test_a_corrupt_entry_gives_the_answer_of_a_missing_one(
    cache: ChunkCache, document: list[Segment], tmp_path: Path
) -> None:
    expected = list(cache.generate(document, max_tokens=12, linker="full"))
    for path in tmp_path.rglob("*.kv"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    first, second = (cache.generate(document, max_tokens=12) for _ in range(2))
    assert list(first) == list(second) == expected
    assert [chunk.tier for chunk in first.report.chunks] == [COMPUTED] * len(PASSAGES)
    assert len(first.report.incidents) == len(PASSAGES) + 1
    assert list(cache.generate(document, max_tokens=12)) == expected
    assert prefill_prompt(cache, document).report.part == 0.0, "kept again after the answer"
