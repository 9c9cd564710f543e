"""What the configuration makes of memory: in all as much as it says, whatever the number of ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace as Some
from typing import Any

import pytest
import torch

from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.setup import Setup
from ragcache.errors import ConfigError
from ragcache.store import open_store
from ragcache.store.defaults import RAM_BYTES
from ragcache.store.eviction import VARIANTS
from ragcache.store.remote.store import SharedStore
from tests.ragcache.store.conftest import build_variant

HEADS = 4


def setup(folder: Path, ranks: int, **extra: Any) -> Setup:
    model = Some(
        hf_text_config=Some(num_hidden_layers=2),
        dtype=torch.float32,
        get_total_num_kv_heads=lambda: HEADS,
        get_head_size=lambda: 4,
    )
    config = Some(parallel_config=Some(tensor_parallel_size=ranks), model_config=model)
    return Setup(config, {"store": str(folder), "codec": "raw", **extra}, LinkSettings(), 16, 16)


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize(("extra", "budget"), [({}, RAM_BYTES), ({"ram_bytes": 8000}, 8000)])
def test_ranks_share_the_ram(tmp_path: Path, ranks: int, extra: dict[str, int], budget: int) -> None:
    made = setup(tmp_path, ranks, **extra)
    stores = [made.worker_store(rank) for rank in range(ranks)]
    assert [store.stats()[0].budget for store in stores] == [budget // ranks] * ranks
    assert [told.tier for told in made.scheduler_store().stats()] == ["disk"], "it needs no KV"


def test_no_limit_is_for_who_asks_for_it(tmp_path: Path) -> None:
    assert setup(tmp_path, 2, ram_bytes=None).worker_store(0).stats()[0].budget is None


def test_the_order_of_eviction_is_chosen_by_its_name(tmp_path: Path) -> None:
    setup(tmp_path, 1, eviction="lru").worker_store(0)
    for opened in (lambda made: made.worker_store(0), lambda made: made.scheduler_store()):
        with pytest.raises(ConfigError, match="unknown order of eviction 'mru'"):
            opened(setup(tmp_path, 1, eviction="mru"))


def test_both_sides_keep_as_many_variants_as_it_says(tmp_path: Path) -> None:
    for opened in (lambda made: made.worker_store(0), lambda made: made.scheduler_store()):
        assert opened(setup(tmp_path, 1)).most_variants == VARIANTS
        assert opened(setup(tmp_path, 1, variants=3)).most_variants == 3
        with pytest.raises(ConfigError, match="variants is 65: keep 1 to 64"):
            opened(setup(tmp_path, 1, variants=65))


@pytest.mark.parametrize("ranks", [1, 2])
def test_both_sides_share_a_bucket(tmp_path: Path, ranks: int) -> None:
    made = setup(tmp_path, ranks, remote=f"file://{tmp_path}/bucket", remote_bytes=1 << 30)
    for store in (made.scheduler_store(), *map(made.worker_store, range(ranks))):
        assert isinstance(store, SharedStore)
        store.close()
    del made.extra["store"]
    with pytest.raises(ConfigError, match="a bucket needs a disk as its cache"):
        made.scheduler_store()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_rank_keeps_its_own_heads(tmp_path: Path, ranks: int) -> None:
    variant = build_variant(heads=HEADS)
    open_store(tmp_path, ram_bytes=0, codec="raw").put(variant)
    made = setup(tmp_path, ranks)
    assert made.token_bytes * len(variant) * ranks == variant.nbytes
    for rank in range(ranks):
        store = made.worker_store(rank)
        for tier in ("disk", "ram"):
            fetched = store.get(variant.key)
            assert fetched is not None
            assert fetched.tier == tier
            torch.testing.assert_close(fetched.variant.k, variant.k[:, made.heads(rank)], rtol=0, atol=0)
            torch.testing.assert_close(fetched.variant.v, variant.v[:, made.heads(rank)], rtol=0, atol=0)
