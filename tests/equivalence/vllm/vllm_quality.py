"""The quality benchmark in both engines: the same questions, the same figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import LoadedModel, load_torch_model
from app.settings import Settings, load_settings
from benchmarks.caches import capture
from benchmarks.choices import parse_linkers
from benchmarks.data import read_dataset
from benchmarks.quality import QualityBenchOptions
from benchmarks.quality.comparison import compare
from benchmarks.quality.engines import open_answering
from benchmarks.quality.measurement import run
from ragcache.errors import StoreError
from tests.benchmarks.conftest import letters
from tests.benchmarks.small_folder import write_small_folder
from tests.tiny import make_chunks, make_question

LINKERS = "full,naive,first_tokens:k=4,query"
OPTIONS = QualityBenchOptions(
    parse_linkers(LINKERS), ("alone", "document"), None, 0, 8, 3, "best", 12, 1, 1, ("fixed", "semantic"), data=Path()
)


@pytest.fixture(scope="module")
def settings(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    root = tmp_path_factory.mktemp("quality")
    folder = write_small_folder(root / "model", smollm2)
    return load_settings(None, model=str(folder), dtype="float32", cache_dir=root, codec="raw", engine="vllm")


@pytest.fixture(scope="module")
def vllm(settings: Settings) -> Iterator[LoadedModel]:
    from benchmarks.quality.forcing import engine_options
    from benchmarks.vllm_model import open_vllm

    with open_vllm(
        settings, enforce_eager=True, block_size=32, kv_cache_memory_bytes=64_000_000, **engine_options()
    ) as model:
        yield model


@pytest.fixture(scope="module")
def torch_model(settings: Settings) -> LoadedModel:
    return load_torch_model(settings.model_copy(update={"engine": "torch"}))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "questions.jsonl"
    contexts = [[f"{fruit} grow in the {place} of {n} kinds. They are ripe in month {n}." for n in range(3)]
                for fruit, place in (("Apples", "orchard"), ("Pears", "garden"), ("Plums", "valley"))]  # fmt: skip
    lines = [{"question": f"Where is number {n}?", "answers": ["Here"], "contexts": one}
             for n, one in enumerate(contexts)]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def test_the_same_figures_as_in_torch(vllm: LoadedModel, torch_model: LoadedModel, data: Path, tmp_path: Path) -> None:
    dataset = read_dataset(data)
    rows = {
        model.engine.name: run(model, letters, dataset, OPTIONS, tmp_path / f"{model.engine.name}.json")
        for model in (vllm, torch_model)
    }
    assert {row["engine"] for row in rows["vllm"]} == {"vllm"}
    told = {name: json.loads((tmp_path / f"{name}.json").read_text())["answers"] for name in rows}
    for question, record in told["vllm"].items():
        theirs = told["torch"][question]
        assert record["answer"] == theirs["answer"]
        for one, other in zip(record["results"], theirs["results"], strict=True):
            assert one.keys() == other.keys()
            for name, figure in one.items():
                expected = other[name] if isinstance(figure, str) else pytest.approx(other[name], abs=1e-4)
                assert figure == expected, (name, one["linker"], "but for rounding")
    for row in rows["vllm"]:
        if row["linker"] == "full":
            assert row["kl"] == pytest.approx(0, abs=1e-6)
            assert (row["agree"], row["rouge_l"], row["part"]) == (1, 1, 1)
        elif row["context"] == "document":
            assert float(str(row["kl"])) > 1e-4, "what is linked is not the same, so the zero above is no accident"
        assert row["ttft_s"] is not None
    assert (
        max(abs(float(str(row["furthest"]))) for row in compare(tmp_path / "vllm.json", tmp_path / "torch.json")) < 1e-4
    )


def test_an_answer_that_ends_at_once_has_the_distribution_of_its_end(
    vllm: LoadedModel, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm.template, "stop", frozenset(range(vllm.engine.spec.vocabulary)))
    rows = run(vllm, letters, read_dataset(data), OPTIONS, tmp_path / "out.json")
    naive = next(row for row in rows if row["linker"] == "naive")
    assert naive["kl"] == naive["kl_first"] != 0
    assert naive["rouge_l"] == 1.0, "two empty answers"


def test_a_chunk_that_is_not_there_spoils_no_figure(vllm: LoadedModel) -> None:
    answering: Any = open_answering(vllm, "alone", 4)
    system, (known, strange) = vllm.template.system(), make_chunks(20, 20)
    list(capture(answering.cache, system, [[known]], [known]))
    segments = [system, known, strange, make_question(5)]
    full = answering.reference(segments)
    with pytest.raises(StoreError, match="naive from ram: some chunks were computed instead"):
        answering.linked(segments, "naive", full)
