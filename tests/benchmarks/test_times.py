"""The benchmarks of time and memory: what they measure and write; the figures themselves are the machine's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.models.loading import TorchModel
from app.samples import read_samples
from benchmarks import timing
from benchmarks.choices import parse_linkers
from benchmarks.corpus import fill, read_texts, shuffled, split_documents
from benchmarks.kvgen import KvgenBenchOptions
from benchmarks.kvgen import measurement as kvgen
from benchmarks.memory import MemoryBenchOptions
from benchmarks.memory import measurement as memory
from benchmarks.ttft import TtftBenchOptions
from benchmarks.ttft import measurement as ttft
from ragcache.errors import ConfigError
from ragcache.types import Chunk

TEXTS = list(read_samples().values())


def test_ttft(parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "ttft.json"
    options = TtftBenchOptions((300, 500), parse_linkers("query,first_tokens:k=4"), 60, 1, 0)
    rows = ttft.run(parts, TEXTS, options, out)
    written = json.loads(out.read_text())
    assert written["rows"] == rows
    assert written["settings"]["codec"] == parts.settings.codec
    cases = [("stock", "full"), ("floor", "naive"), *[(case, linker) for case in ("ram", "disk")
             for linker in ("query", "first_tokens:k=4")]]  # fmt: skip
    assert [(row["tokens"], row["case"], row["linker"]) for row in rows] == [
        (tokens, *case) for tokens in (300, 500) for case in cases
    ]
    for row in rows:
        assert set(row) == {
            "case", "tokens", "linker", "beside", "part", "ttft_s", "efficiency", "speedup", "own_s", "slower"
        }  # fmt: skip
        assert (row["beside"], row["slower"]) == (0, None)
    stock, floor, ram, disk = rows[0], rows[1], rows[2], rows[4]
    assert (stock["part"], floor["part"]) == (1.0, 0.0)
    assert 0.05 < ram["part"] < 0.7
    assert disk["part"] == pytest.approx(ram["part"], abs=0.05), "the codec of the disk may move a token or two"
    assert 0 < ram["own_s"] < ram["ttft_s"]
    assert disk["own_s"] is None, "there it waits for files"
    bound = floor["ttft_s"] + ram["part"] * stock["ttft_s"]
    assert ram["efficiency"] == pytest.approx(bound / ram["ttft_s"])
    assert disk["speedup"] == pytest.approx(stock["ttft_s"] / disk["ttft_s"])


@pytest.mark.slow
def test_ttft_beside_busy_processes(parts: TorchModel) -> None:
    rows = ttft.run(parts, TEXTS, TtftBenchOptions((300,), parse_linkers("naive"), 60, 1, 0, beside=1), None)
    idle, busy = rows[: len(rows) // 2], rows[len(rows) // 2 :]
    assert [(row["case"], row["beside"]) for row in busy] == [(row["case"], 1) for row in idle]
    for quiet, loud in zip(idle, busy, strict=True):
        assert loud["slower"] == pytest.approx(float(str(loud["ttft_s"])) / float(str(quiet["ttft_s"])))


def test_ttft_from_disk_is_from_disk(parts: TorchModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tiers: list[set[str]] = []
    row = timing._row
    monkeypatch.setattr(
        timing, "_row", lambda case, others, reports, *rest: (
            tiers.append({chunk.tier for report in reports for chunk in report.chunks}),
            row(case, others, reports, *rest),
        )[1],
    )  # fmt: skip
    ttft.run(parts, TEXTS, TtftBenchOptions((300,), parse_linkers("naive"), 60, 1, 0), None)
    assert tiers == [{"computed"}, {"ram"}, {"ram"}, {"disk"}]
    assert list(parts.settings.cache_dir.glob("bench-*")) == [], "nothing is left behind"


@pytest.mark.slow
def test_a_prompt_longer_than_the_context_is_refused(parts: TorchModel) -> None:
    with pytest.raises(ConfigError, match="--tokens 3000: the model's context has 2048"):
        ttft.run(parts, TEXTS, TtftBenchOptions((300, 3000), parse_linkers("naive"), 60, 1, 0), None)
    with pytest.raises(ConfigError, match="the model's context has"):
        kvgen.run(parts, TEXTS, KvgenBenchOptions((2048,), 60, 1), None)


@pytest.mark.slow
def test_kvgen(parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "kvgen.json"
    rows = kvgen.run(parts, TEXTS, KvgenBenchOptions((200, 400), 60, 1), out)
    assert json.loads(out.read_text())["rows"] == rows
    assert [row["tokens"] for row in rows] == [200, 400]
    for row in rows:
        assert row["ratio"] == pytest.approx(row["kvgen_s"] / row["prefill_s"])


@pytest.mark.slow
def test_memory(tiny_folder: Path, parts: TorchModel, tmp_path: Path) -> None:
    out = tmp_path / "memory.json"
    settings = parts.settings.model_copy(update={"linker": "query"})
    load, ingest, link = memory.main(settings, MemoryBenchOptions(0.01, 3), out)
    assert [row["case"] for row in (load, ingest, link)] == ["load", "ingest", "link"]
    assert load["tokens"] == 0
    assert 1500 < ingest["tokens"] < 4000, "10,000 characters"
    assert (link["chunks"], ingest["chunks"] > 10) == (3, True)
    assert all(50 < row["peak_mb"] < 5000 for row in (load, ingest, link))


def test_chunks_fill_a_prompt_to_the_token(parts: TorchModel) -> None:
    chunks = [Chunk((n,) * 10) for n in range(3)]
    filled = fill(shuffled(chunks, 1), 47)
    assert [len(chunk) for chunk in filled] == [10, 10, 10, 10, 7]
    assert set(filled[:3]) == set(chunks), "all of them before one comes again"
    assert fill(shuffled(chunks, 1), 47) == filled
    with pytest.raises(ConfigError, match="ask for more --tokens"):
        fill(shuffled(chunks, 1), 0)


def test_texts_come_from_data_of_either_form(given_file: Path, corpora_folder: Path, parts: TorchModel) -> None:
    assert len(read_texts(given_file)) == 12
    assert len(read_texts(corpora_folder)) == 2
    assert read_texts(None) == TEXTS
    documents = split_documents(parts.template, TEXTS, 50)
    assert len(documents) == 3
    assert all(len(chunk) <= 53 for document in documents for chunk in document)
