"""How the parts of `make gpu` end, and what each of them asks: quick, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest
import torch

from benchmarks import caches
from benchmarks.gpu import ENGINES, SHAPES, VLLM, GpuBenchOptions, LeftOut, exactness, index, model
from benchmarks.gpu import __main__ as parts
from benchmarks.gpu.shapes import MODELS, RandomIds, random_engine
from benchmarks.output import Row
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import ModelError, StoreError
from ragcache.report import Report
from ragcache.store import open_store
from ragcache.store.ram import RamTier
from ragcache.types import Segment, Variant
from retriever import RetrieverError

OPTIONS = GpuBenchOptions(device="cpu", shapes=("tiny",), rounds=2)
FLOAT32 = torch.float32


@pytest.fixture
def cache() -> ChunkCache:
    engine = random_engine(MODELS["tiny"], torch.device("cpu"), FLOAT32, 0)
    return ChunkCache(engine, open_store(codec="raw"), "naive", context_chunks=3, keep_missed=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_all_parts_of_an_engine_fit_into_nine_minutes(engine: str) -> None:
    asked = list(parts.parts_of(GpuBenchOptions(shapes=SHAPES, engines=(engine,))))
    assert set(asked) == {part for part in parts.LIMITS if part.startswith(VLLM) == (engine == "vllm")}
    assert sum(parts.LIMITS[part] for part in asked) <= 540


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        (["done (3 s)", "done (1 s)"], 0),
        (["done (3 s)", "left out (1 s)"], 0),
        (["left out (3 s)", "left out (1 s)"], parts.FAILED),
        (["done (3 s)", "FAILED, for the reason above (1 s)"], parts.FAILED),
        (["FAILED: it took longer than 9 s (9 s)", "left out (0 s)"], parts.FAILED),
    ],
)
def test_something_must_be_measured_and_nothing_fail(ends: list[str], code: int) -> None:
    assert parts.outcome(ends) == code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ImportError("no module"), parts.LEFT_OUT),
        (LeftOut("no FAISS"), parts.LEFT_OUT),
        (RetrieverError("an index is broken"), parts.FAILED),
        (ModelError("a model is refused"), parts.FAILED),
        (StoreError("full"), parts.FAILED),
    ],
)
def test_a_part_is_left_out_for_want_of_a_library_alone(
    error: Exception, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(part: str, options: GpuBenchOptions) -> Iterator[tuple[str, list[Row]]]:
        yield part, [{"n": 1}]
        raise error

    monkeypatch.setattr(parts, "import_module", lambda name: SimpleNamespace(measure=measure))
    assert parts._run_part("index", OPTIONS, tmp_path) == code
    assert str(error) in capsys.readouterr().err
    assert json.loads((tmp_path / "index.json").read_text())["rows"] == [{"n": 1}]


def test_a_gpu_that_faiss_does_not_see_leaves_the_index_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "gpu_copier", lambda: None)
    with pytest.raises(LeftOut, match="sees no GPU"):
        index._copier("cuda")


@pytest.mark.parametrize(
    ("error", "exact"),
    [(0.0, "yes"), (1e-5, "yes"), (1e-3, "NO"), (None, "NO")] + [(float(x), "NO") for x in ("nan", "inf", "-inf")],
)
def test_what_is_no_number_is_not_exact(error: float | None, exact: str) -> None:
    assert exactness.judged("a case", FLOAT32, error)["exact"] == exact


def test_a_model_that_is_refused_is_a_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(cls: type[TorchEngine], model: object) -> NoReturn:
        raise ModelError("its logits differ from ours by 40%")

    monkeypatch.setattr(exactness, "FAMILIES", {"Llama": {}})
    monkeypatch.setattr(TorchEngine, "from_model", classmethod(refuse))
    assert parts._run_part("exactness", OPTIONS, tmp_path) == parts.FAILED
    rows = json.loads((tmp_path / "exactness.json").read_text())["rows"]
    rows = [row for row in rows if row["model"] == "Llama"]
    assert [(row["case"], row["exact"], row["error"]) for row in rows] == [("loading", "NO", None)] * 2
    assert {row["reason"] for row in rows} == {"its logits differ from ours by 40%"}
    assert "differ from ours" in capsys.readouterr().out


def test_each_round_asks_another_prompt_of_all_cases(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, list[Sequence[Segment]]] = {}

    def answered(cache: ChunkCache, segments: Sequence[Segment], linker: str) -> Report:
        asked.setdefault(linker, []).append(segments)
        return Report(linker, 0, 0, 0)

    monkeypatch.setattr(model, "first_token", answered)
    monkeypatch.setattr(model, "CHUNK_TOKENS", 40)
    prompts = model.prompts(RandomIds(cache.engine.spec.vocabulary, 0), 300, cache, cache.store, rounds=2)
    model.interleaved(model._cases(cache, cache, cache, prompts), rounds=2)
    measured = prompts[:3]
    assert asked["full"] == asked["naive"] == measured
    assert asked["auto"] == [prompt for prompt in measured for _ in ("served", "ram", "disk")]
    assert asked["fast"] == [prompt for prompt in measured for _ in ("ram", "disk")]
    assert len({prompt[-1].ids for prompt in prompts}) == 3 + model.LEARNT
    assert len({tuple(chunk.ids for chunk in prompt[1:-1]) for prompt in prompts}) == 3 + model.LEARNT
    assert {sum(map(len, prompt)) for prompt in prompts} == {300}


def test_a_measured_capture_is_stored_in_an_empty_tier(cache: ChunkCache, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers: list[list[Variant]] = []

    class Watched(RamTier):
        def __init__(self, budget: int | None) -> None:
            super().__init__(budget)
            tiers.append([])

        def put(self, variant: Variant, *, wanted: bool = False) -> bool:
            tiers[-1].append(variant)
            return super().put(variant, wanted=wanted)

    monkeypatch.setattr(caches, "RamTier", Watched)
    ids = RandomIds(cache.engine.spec.vocabulary, 0)
    system = cache.system_variant(ids.system())
    row = caches.measured_capture(cache, system, ids.chunks(200, 40), 1, stored=True)
    assert row["tokens"] == 200
    assert [len(tier) for tier in tiers] == [5, 5]
    caches.measured_capture(cache, system, ids.chunks(200, 40), 1)
    assert len(tiers) == 2, "unless it is asked for"


@pytest.mark.slow
def test_rows_are_there_after_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "CAPTURED", (300, 500, 16_384))
    seen = [(name, len(rows)) for name, rows in model.measure("tiny", OPTIONS)]
    assert seen == [
        ("first_token", 7), ("loading", 2), ("first_token", 14), ("loading", 4),
        ("capture", 1), ("capture", 2), ("capture", 3),
    ]  # fmt: skip
