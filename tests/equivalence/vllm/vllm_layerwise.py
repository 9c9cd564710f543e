"""Inside vLLM too, a prompt that is alone is computed over while its upper layers still come."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from ragcache.engine.vllm.block_names import link_name
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.jobs import NamedLinkage, RequestJob
from ragcache.engine.vllm.late_layers import LateLayers
from ragcache.errors import ConfigError
from ragcache.linking import make_linker
from ragcache.loader import UNKNOWN, Delivery, Loading, PieceLoaded
from ragcache.loader.climb import Climb
from ragcache.loader.layerwise import LayerwiseLoader
from ragcache.loader.sequential import SequentialLoader
from ragcache.loader.threads import DiskThreads
from ragcache.planning import plan_prompt
from ragcache.policy import Rates
from ragcache.store import open_store
from ragcache.types import Chunk, Segment
from tests.cold_prompts import Gate
from tests.equivalence.vllm.conftest import OpenPair, Pair
from tests.equivalence.vllm.vllm_cake import Made, made
from tests.loaders import known_rates
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, left_as_found

SYSTEM, QUESTION = make_system(40), make_question(15)
DOCUMENT = make_chunks(50, 61, 48, 55, 42, 34)
MIXED: list[Segment] = [SYSTEM, *(DOCUMENT[place] for place in (3, 0, 5, 1)), QUESTION]
AS_CAPTURED: list[Segment] = [SYSTEM, DOCUMENT[0], DOCUMENT[1], QUESTION]  # nothing of it is repaired
PIECES = 5
LIMIT_S = 60.0


@pytest.fixture(autouse=True)
def _a_layer_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragcache.loader.climb.READ_BYTES", 1)


@pytest.fixture(scope="module")
def opened(open_pair: OpenPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    store = open_store(tmp_path_factory.mktemp("layers"), ram_bytes=0, codec="raw")
    with open_pair(store=store, linking={"loader": "layerwise"}, block_size=32) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        assert isinstance(pair.engine._worker.loader, LayerwiseLoader)
        yield pair


@pytest.fixture
def pair(opened: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """By whose rates all that is loaded would come while it is linked."""
    monkeypatch.setattr(opened.engine._connector.scheduler.pace, "rates", slow_engine())
    monkeypatch.setattr(opened.engine._worker, "_rates", slow_engine())
    with left_as_found(opened.engine):
        yield opened


def slow_engine() -> Rates:
    return known_rates(compute_s=1.0, load_s=1e-9)


@pytest.fixture
def threads() -> Iterator[DiskThreads]:
    started = DiskThreads(1, "test-layers", LIMIT_S)
    yield started
    started.close()


class Watching(LayerwiseLoader):
    """Opens the gate when a layer is asked for that the gate has held back."""

    gate: Gate
    asked: list[int]
    opens = True

    def begin(self, *given: Any, **named: Any) -> Loading:
        loading = super().begin(*given, **named)
        original = loading.layer

        def layer(number: int) -> Iterator[Delivery]:
            self.asked.append(number)
            if number > 0 and self.opens:
                self.gate.opened.set()
            return original(number)

        loading.layer = layer  # type: ignore[method-assign]
        return loading


def watching(threads: DiskThreads, reads: int = PIECES, *, opens: bool = True) -> Watching:
    gate = Gate(reads)
    loader = Watching(threads, pace=gate)
    loader.gate, loader.asked, loader.opens = gate, [], opens
    return loader


def assert_same(ours: Made, theirs: Made) -> None:
    assert ours.tokens == theirs.tokens
    for mine, other in zip(ours.blocks, theirs.blocks, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("linker", ["naive", "boundary", "cci:ratio=0.5", "auto:ratio=0.2", "query:ratio=0.2"])
def test_lower_layers_are_computed_over_while_upper_ones_are_awaited(
    pair: Pair, threads: DiskThreads, linker: str
) -> None:
    """The disk gives the first layer of each piece, and others when one of them is asked for."""
    loader = watching(threads)
    found = made(pair, MIXED, linker, loader)
    assert loader.gate.opened.is_set()
    assert max(loader.asked) == pair.tiny.model.config.num_hidden_layers - 1
    assert_same(found, made(pair, MIXED, linker, SequentialLoader(threads)))
    assert [chunk.tier for chunk in found.report.chunks] == ["disk"] * 4
    assert found.report.incidents == []
    assert found.tokens == list(pair.torch.generate(MIXED, max_tokens=len(found.tokens), linker=linker))


def test_what_is_not_computed_over_is_whole_before_vllm_goes_on(pair: Pair, threads: DiskThreads) -> None:
    loader = watching(threads, 3)
    found = made(pair, AS_CAPTURED, "auto", loader)
    assert loader.gate.opened.is_set()
    assert_same(found, made(pair, AS_CAPTURED, "auto", SequentialLoader(threads)))
    assert found.report.repaired == 0


@pytest.mark.parametrize("linker", ["boundary", "auto:ratio=0.2"])
@pytest.mark.parametrize("segments", [MIXED, AS_CAPTURED])
def test_layers_that_do_not_come_cost_time_alone(
    pair: Pair, linker: str, segments: Sequence[Segment], caplog: pytest.LogCaptureFixture
) -> None:
    threads = DiskThreads(1, "test-layers", 1.5)  # longer than a busy machine takes to read a layer
    loader = watching(threads, len(segments) - 1, opens=False)
    found = made(pair, segments, linker, loader)
    loader.gate.opened.set()
    threads.close()
    assert found.tokens == list(pair.torch.generate(segments, max_tokens=len(found.tokens), linker="full"))
    assert any("not loaded in time" in told for told in found.report.incidents), found.report.incidents
    assert "is not linked" in caplog.text


def test_a_torn_upper_layer_is_computed(pair: Pair, threads: DiskThreads, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Climb._part

    def torn(self: Climb, *given: Any) -> Any:
        if self.read > 0 and self.piece.index == 2:
            raise OSError("a page of it cannot be read")
        return plain(self, *given)

    monkeypatch.setattr(Climb, "_part", torn)
    found = made(pair, MIXED, "boundary", watching(threads))
    assert found.tokens == list(pair.torch.generate(MIXED, max_tokens=len(found.tokens), linker="full"))
    assert found.report.incidents


def test_many_pieces_are_brought_beside_one_another(pair: Pair, threads: DiskThreads) -> None:
    """What is written of one layer tells of that layer again, as the pass does."""
    cut = [Chunk(DOCUMENT[place % 6].ids[: 9 + place]) for place in range(20)]
    list(pair.torch.ingest(SYSTEM, cut))
    segments: list[Segment] = [SYSTEM, *cut[::-1], QUESTION]
    deepest = [0]
    plain = LateLayers.bring

    def bring(self: LateLayers, layer: int) -> None:
        deepest[0] = max(deepest[0], len(inspect.stack(0)))
        plain(self, layer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LateLayers, "bring", bring)
        loader = watching(threads, len(segments) - 1)
        found = made(pair, segments, "boundary", loader)
    assert max(loader.asked) > 0
    assert_same(found, made(pair, segments, "boundary", SequentialLoader(threads)))
    assert found.report.incidents == []
    assert deepest[0] < 100


def test_every_rank_computes_what_lags_on_any_in_a_pass_of_its_own(pair: Pair) -> None:
    plan = plan_prompt(MIXED, pair.engine.spec.fingerprint, pair.torch.store)
    linker = make_linker("boundary")
    name = link_name(plan, linker, 0)
    for rank in (0, 1):
        linkage = NamedLinkage(plan, linker, plan.system_infos[0].key, name=name)
        job = RequestJob("a", linkage, range(12), 0, ranks=2, layers=3)
        job.load(None, 1.0)
        for piece in job.pieces:
            for one in (0, 1):
                seconds = UNKNOWN if one == rank and piece.index == 2 else 0.1
                job.loaded(PieceLoaded(piece.index, 0, "disk", 9, True, seconds))
        assert job.needs_room
        assert job.tail(1000, 1000) is None
        first, second = job.compute(2, 100), job.compute(1000, 1000)
        assert first.lags
        assert not second.lags


def test_others_are_not_kept_waiting_for_layers(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody else is there, a prompt is taken up when all of it has come."""
    told: list[float] = []
    begin = LayerwiseLoader.begin

    def watched(self: LayerwiseLoader, pieces: Any, store: Any, rates: Any = None, linking: float = 0.0) -> Loading:
        told.append(linking)
        return begin(self, pieces, store, rates, linking)

    monkeypatch.setattr(LayerwiseLoader, "begin", watched)
    running = pair.vllm.generate([SYSTEM, QUESTION], max_tokens=200)
    first = next(iter(running))
    with ThreadPoolExecutor(2) as askers:
        asked = [askers.submit(lambda: list(pair.vllm.generate(MIXED, max_tokens=9))) for _ in range(1)]
        tokens = [one.result() for one in asked]
    assert first is not None and told == [0.0]
    list(running)
    assert tokens == [list(pair.torch.generate(MIXED, max_tokens=9))]
    drain(pair.engine)
    pair.engine.forget_prefixes()
    list(pair.vllm.generate(MIXED, max_tokens=2))
    assert told[1] > 0, "it is alone"


def test_a_loader_of_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="loader is 'sideways': choose cake or layerwise"):
        LinkSettings(loader="sideways")  # type: ignore[arg-type]
