"""The engine computes over the lower layers of a prompt while its upper ones still come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.engine.torch.generation import Prefilled
from ragcache.loader import UNKNOWN, Delivery, Loader, Loading, SegmentPiece
from ragcache.loader.layerwise import DEPTH, LayerwiseLoader, _Layers, preload_depth
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.report import COMPUTED
from ragcache.store.base import KVStore
from tests.cold_prompts import ALL, DOCUMENT, LEAD, LIMIT_S, Gate, ingested, over, prompt
from tests.linkers import LINKER_ROWS
from tests.loaders import known_rates
from tests.tiny import Tiny, assert_close

LAYERS = 3
PIECES = 5  # System and four chunks


@pytest.fixture(autouse=True)
def _a_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.loader.climb.READ_BYTES", 1)


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    made = DiskThreads(2, "test-layers", LIMIT_S)
    yield made
    made.close()


def linked(tiny: Tiny, store: KVStore, loader: Loader, linker: str = "naive") -> Prefilled:
    """All that is loaded would come while it is linked."""
    return prefill_prompt(over(tiny, store, loader, known_rates(1.0, 1e-9)), prompt(2, 0, 5, 3), linker)


@pytest.mark.parametrize(
    ("layers", "computing", "loading", "depth"),
    [
        (5, 1.0, 2.0, 3),  # 4 layers left · half of them come too late + 1
        (5, 2.0, 2.0, 1),
        (5, 3.0, 2.0, 1),
        (5, 0.0, 2.0, 5),
        (30, 1.0, 3.0, 21),  # 29 · 2/3 = 19.3
        (30, 1.0, 0.0, 1),
        (30, 0.0, 0.0, 30),  # of unknown size, for whoever computes nothing over them
        (1, 1.0, 9.0, 1),
    ],
)
def test_as_many_layers_first_as_equation_16_has(layers: int, computing: float, loading: float, depth: int) -> None:
    assert preload_depth(layers, computing, loading) == depth


@pytest.mark.parametrize("codec", ["raw", "bf16", "int8", "int4"])
@pytest.mark.parametrize("linker", [*LINKER_ROWS, "cci:ratio=0.5", "query:ratio=0.2"])
def test_the_answer_is_that_of_the_plain_loader(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, linker: str, codec: str
) -> None:
    store = ingested(tiny, tmp_path, 3, codec)
    expected = linked(tiny, store, SequentialLoader(), linker)
    made = linked(tiny, store, LayerwiseLoader(threads), linker)
    assert_same(made, expected)
    assert made.report.chunks == expected.report.chunks
    assert made.report.incidents == expected.report.incidents == []


def assert_same(made: Prefilled, expected: Prefilled) -> None:
    length = len(expected.plan.ids)
    for name in ("k", "v"):
        held, wanted = getattr(made.buffer, name), getattr(expected.buffer, name)
        for layer in range(LAYERS):
            assert_close(held[layer, :, :length], wanted[layer, :, :length], 0.0)
    assert_close(made.logits, expected.logits, 0.0)


def test_lower_layers_are_computed_over_while_upper_ones_are_awaited(tiny: Tiny, tmp_path: Path) -> None:
    """The disk gives the first layer of each piece, and the next ones when the first has been computed over."""
    store, gate, threads = ingested(tiny, tmp_path), Gate(PIECES), DiskThreads(1, "test-layers", LIMIT_S)
    expected = linked(tiny, store, SequentialLoader())

    class Watching(LayerwiseLoader):
        def begin(self, *given: Any, **named: Any) -> Loading:
            loading = super().begin(*given, **named)
            original = loading.layer

            def layer(number: int) -> Iterator[Delivery]:
                if number == 1:
                    assert gate.reads <= PIECES + 1
                    gate.opened.set()
                return original(number)

            loading.layer = layer  # type: ignore[method-assign]
            return loading

    made = linked(tiny, store, Watching(threads, pace=gate))
    threads.close()
    assert_same(made, expected)
    assert gate.reads == LAYERS * PIECES
    assert gate.opened.is_set()


def test_all_is_brought_first_where_the_link_takes_no_time(tiny: Tiny, tmp_path: Path, threads: DiskThreads) -> None:
    store = ingested(tiny, tmp_path)
    pieces = [
        SegmentPiece(place, 40 * place, (one.key,), tokens=len(one), nbytes=9, tier="disk")
        for place, one in enumerate(ChunkCache(tiny.engine, store, context_chunks=ALL).ingest(LEAD, DOCUMENT))
    ]
    for linking, whole in ((0.0, True), (1e9, False)):
        loading = LayerwiseLoader(threads).begin(pieces, store, known_rates(1.0, 1.0), linking)
        taken = list(loading.deliveries())
        assert loading.lags != whole
        layers = sum(block.layers.stop - block.layers.start for one in taken for block in one.blocks)
        assert layers == (LAYERS if whole else 1) * len(pieces)
        assert [one.loaded.seconds != UNKNOWN for one in taken if one.loaded] == [whole] * len(pieces)
        rest = [one for layer in range(LAYERS) for one in loading.layer(layer)]
        assert layers + len(rest) == LAYERS * len(pieces)
        assert not loading.lags
        assert sum(one.loaded is not None for one in rest) == (0 if whole else len(pieces))
        loading.stop()


@pytest.mark.parametrize("linker", ["naive", "auto", "cacheblend"])
def test_an_upper_layer_that_is_torn_costs_time_alone(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, linker: str
) -> None:
    """What was computed over the lower ones is computed again, and the report tells why."""
    store = ingested(tiny, tmp_path)
    made = linked(tiny, store, LayerwiseLoader(threads), linker)
    assert [chunk.tier for chunk in made.report.chunks] == ["disk"] * 4
    [torn] = tmp_path.rglob(f"{made.plan.chunks[2].candidates[0].info.key.digest}*")
    content = torn.read_bytes()
    torn.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    again = linked(tiny, store, LayerwiseLoader(threads), linker)
    assert [chunk.tier for chunk in again.report.chunks].count(COMPUTED) == 1
    assert sum("cache entry not used" in told for told in again.report.incidents) == 1
    assert_same(again, linked(tiny, store, SequentialLoader(), linker))


def test_little_room_for_what_is_read_ahead_holds_nobody_up(
    tiny: Tiny, tmp_path: Path, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It bounds what lies about, and what is waited for is read all the same."""
    monkeypatch.setattr("ragcache.loader.layerwise.AHEAD_BYTES", 1)
    store, held = ingested(tiny, tmp_path), list[int]()

    class Watching(LayerwiseLoader):
        def begin(self, *given: Any, **named: Any) -> Loading:
            loading = super().begin(*given, **named)
            assert isinstance(loading, _Layers)
            original = loading.layer

            def layer(number: int) -> Iterator[Delivery]:
                for found in original(number):
                    held.append(sum(len(climb.parts) for climb in loading._climbs))
                    yield found

            loading.layer = layer  # type: ignore[method-assign]
            return loading

    assert_same(linked(tiny, store, Watching(threads)), linked(tiny, store, SequentialLoader()))
    assert held, "layers lagged"
    assert max(held) <= PIECES + DEPTH


def test_a_disk_that_stops_is_waited_for_once(tiny: Tiny, tmp_path: Path) -> None:
    """Whatever else it had to bring is computed, and the report tells so."""
    store, threads, gate = ingested(tiny, tmp_path), DiskThreads(2, "test-layers", 0.1), Gate(PIECES + 1)
    made = linked(tiny, store, LayerwiseLoader(threads, pace=gate))
    gate.opened.set()
    threads.close()
    assert [chunk.tier for chunk in made.report.chunks] == [COMPUTED] * 4
    assert_close(made.logits, prefill_prompt(over(tiny, store, SequentialLoader()), prompt(2, 0, 5, 3), "full").logits)
    assert made.report.incidents
