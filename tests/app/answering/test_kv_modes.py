"""What answers do with KV, by RAGCACHE_KV."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import RagPipeline, Settings
from app.cachecare.warming import warm
from app.errors import MaintenanceError
from app.library.inspection import show_document
from app.settings import KvMode
from ragcache.report import COMPUTED
from tests.app.filling import fill

QUESTION = "When was the light first shown?"
ALL: tuple[KvMode, ...] = ("auto", "eager", "on-use", "off")


def make(tiny_folder: Path, folder: Path, kv: KvMode) -> RagPipeline:
    return RagPipeline(
        Settings(
            model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", kv=kv, link_when="always",
            linker="naive", max_tokens=6, temperature=0,
        )
    )  # fmt: skip


def files(folder: Path) -> set[Path]:
    return {*(folder / "cache" / "kv").glob("*/*/*/*.kv")}


@pytest.mark.parametrize("kv", ALL)
def test_an_answer_comes_without_any_kv(tiny_folder: Path, tmp_path: Path, kv: KvMode) -> None:
    with make(tiny_folder, tmp_path, kv) as rag:
        fill(rag, ("lighthouse.md",), kv=False)
        first = rag.ask(QUESTION)
        rag.settle()
        second = rag.ask(QUESTION)
        assert first.citations and first.report.incidents == second.report.incidents == []
        assert {chunk.tier for chunk in first.report.chunks} == {COMPUTED}
        assert (COMPUTED in {chunk.tier for chunk in second.report.chunks}) is (kv == "off")
    assert bool(files(tmp_path)) is (kv != "off")


def test_what_answers_have_computed_is_shown(tiny_folder: Path, tmp_path: Path) -> None:
    with make(tiny_folder, tmp_path, "on-use") as rag:
        fill(rag, ("lighthouse.md",), kv=False)
        rag.ask(QUESTION)
        rag.settle()
        shown = show_document(rag.library, "1", None, rag.models)
        assert 0 < sum(bool(shown.variants(chunk)) for chunk in shown.chunks) < len(shown.chunks)


@pytest.mark.parametrize("linker", [None, "naive", "auto"])
def test_off_leaves_what_is_there_alone(tiny_folder: Path, tmp_path: Path, linker: str | None) -> None:
    """Answers are those of a full recompute, whatever linker is asked for, and the files serve again later."""
    with make(tiny_folder, tmp_path, "auto") as rag:
        fill(rag, ("lighthouse.md",))
        before = files(tmp_path)
        full = rag.ask(QUESTION, linker="full")
        rag.settle()
    with make(tiny_folder, tmp_path, "off") as rag:
        answer = rag.ask(QUESTION, linker=linker)
        rag.settle()
        assert (answer.text, answer.report.incidents) == (full.text, [])
        assert {chunk.tier for chunk in answer.report.chunks} == {COMPUTED}
        with pytest.raises(MaintenanceError, match="RAGCACHE_KV is off"):
            next(warm(rag.library, rag.models, rag.library.collection()))
    assert before == files(tmp_path)
    with make(tiny_folder, tmp_path, "auto") as rag:
        assert COMPUTED not in {chunk.tier for chunk in rag.ask(QUESTION).report.chunks}
