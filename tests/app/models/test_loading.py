from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import app.models.vllm
from app.models.loading import load_model, load_store, load_torch_model
from app.settings import Settings, load_settings
from ragcache.errors import ConfigError
from ragcache.store import open_store
from ragcache.store.eviction import ORDERS, EvictionOrder
from tests.ragcache.store.conftest import build_variant


@pytest.fixture
def threads() -> Iterator[int]:
    """The number of threads, put back afterwards."""
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


def test_the_parts_fit_together(tiny_folder: Path, tmp_path: Path) -> None:
    settings = load_settings(
        None, model=str(tiny_folder), cache_dir=tmp_path, dtype="bfloat16", device="cpu", context_chunks=2
    )
    parts = load_torch_model(settings)
    assert parts.engine.spec.dtype == torch.bfloat16
    store = load_store(settings)
    cache = parts.cache(store, "first_tokens", keep_missed=False)
    assert (cache.kvgen.context_chunks, cache.linker.name, cache.keep_missed) == (2, "first_tokens", False)
    template = parts.template
    for _ in cache.ingest(template.system(), [template.chunk("One."), template.chunk("Two.")]):
        pass
    segments = (template.system(), template.chunk("Two."), template.question("Which?"))
    reopened = parts.cache(load_store(settings), "first_tokens")
    report = reopened.generate(segments, max_tokens=1).report
    assert [chunk.tier for chunk in report.chunks] == ["disk"], "what was ingested is there after a restart"
    assert (tmp_path / "kv").is_dir()


def test_the_store_goes_by_the_order_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    monkeypatch.setitem(ORDERS, "largest", EvictionOrder(lambda one: sizes.append(one.nbytes) or -one.nbytes))
    store = load_store(load_settings(None, cache_dir=tmp_path, eviction="largest", ram_bytes=3000))
    for place in range(9):
        store.put(build_variant((place,) * 3))
    assert sizes, "it was asked"


def test_the_store_keeps_as_many_variants_as_the_settings_say(tmp_path: Path) -> None:
    store = load_store(load_settings(None, cache_dir=tmp_path, variants=3))
    for place in range(5):
        store.put(build_variant(context=(f"c{place}",)))
    assert len(store.variants(build_variant().key.family)) == store.most_variants == 3


@pytest.mark.parametrize("name", ["codec", "eviction"])
def test_an_unknown_name_of_the_store_lists_the_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="'nope': choose from "):
        load_store(load_settings(None, cache_dir=tmp_path, **{name: "nope"}))


def test_the_threads_of_the_settings(tiny_folder: Path, tmp_path: Path, threads: int) -> None:
    load_torch_model(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, threads=threads + 1))
    assert torch.get_num_threads() == threads + 1


def test_an_unknown_engine_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"RAGCACHE_ENGINE='vlm': choose from torch"):
        load_torch_model(load_settings(None, engine="vlm", cache_dir=tmp_path))


@pytest.mark.parametrize("load", [load_torch_model, load_model])
def test_an_engine_that_is_not_installed_says_what_to_install(
    load: Callable[[Settings], object], tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.models.vllm, "find_spec", lambda name: None)  # whether this machine has it or not
    settings = load_settings(None, model=str(tiny_folder), engine="vllm", cache_dir=tmp_path)
    reason = "vLLM is not installed: install vllm==0.32.0" if load is load_model else "does not run this: choose torch"
    with pytest.raises(ConfigError, match=f"RAGCACHE_ENGINE='vllm'.* {reason}"):
        load(settings)


def test_a_model_of_either_engine_makes_caches_and_is_closed(tiny_folder: Path, tmp_path: Path) -> None:
    model = load_model(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path, device="cpu"))
    cache = model.cache(open_store(codec="raw"), "naive")
    stream = cache.generate([model.template.system(), model.template.question("Which?")], max_tokens=50)
    first = next(iter(stream))
    stream.close()
    assert list(stream) == []
    assert stream.tokens == [first]
    model.close()
    model.close()


def test_loading_draws_no_bar(tiny_folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_torch_model(load_settings(None, model=str(tiny_folder), cache_dir=tmp_path))
    assert capfd.readouterr() == ("", "")
