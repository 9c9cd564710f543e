"""What is brought ahead of a prompt: its report tells what was met on the way, and what fails leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.errors import RemoteError
from ragcache.planning import AHEAD, plan_prompt
from ragcache.store.findings import Flaw
from ragcache.store.remote import arrivals, catalog
from ragcache.store.remote import store as module
from ragcache.store.remote.arrivals import Arrival
from ragcache.store.remote.names import ObjectPlace
from ragcache.store.remote.nearing import NEARING
from ragcache.store.remote.store import SharedStore
from ragcache.types import Chunk, System, Text, VariantInfo, VariantKey
from tests.buckets import Proxy, S3Bucket
from tests.prefixes import SYSTEM, said, text
from tests.ragcache.store.conftest import MakeVariant
from tests.ragcache.store.remote.conftest import OpenMachine, object_of, settled
from tests.tiny import make_chunks, make_tiny
from tests.waiting import wait_until

(CHUNK,) = make_chunks(90)


@pytest.fixture(scope="module")
def engine() -> TorchEngine:
    return make_tiny(max_position_embeddings=2048).engine


def ahead_of_prompts(store: SharedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks ahead end before a prompt's own plan begins."""
    near = store.near

    def waited(chosen: Callable[[], Sequence[VariantKey]]) -> Callable[[], None]:
        done = threading.Event()

        def told() -> Sequence[VariantKey]:
            try:
                return chosen()
            finally:
                done.set()

        give_up = near(told)
        assert done.wait(60)
        store.stats()  # what was bad is out of the way
        return give_up

    monkeypatch.setattr(store, "near", waited)


def test_all_of_a_long_prompt_is_looked_ahead_for(
    machine: OpenMachine, folder_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many together, before any of them is looked up."""
    store, asked = machine("one", folder_url), list[list[str]]()
    system, chunks = System((1, 2, 3)), [Chunk((5, number)) for number in range(150)]
    look_ahead, variants = store.look_ahead, store.variants

    def ahead(families: Sequence[str]) -> None:
        asked.append([*families])
        look_ahead(families)

    def looked_up(family: str, flaws: list[Flaw] | None = None) -> list[VariantInfo]:
        assert any(family in some for some in asked)
        return variants(family, flaws)

    monkeypatch.setattr(store, "look_ahead", ahead)
    monkeypatch.setattr(store, "variants", looked_up)
    plan_prompt([system, *chunks, Text((7,))], "f" * 32, store)
    assert [len(some) for some in asked] == [AHEAD, AHEAD, 23]


@pytest.mark.parametrize("where", ["disk", "bucket"])
def test_a_report_tells_what_its_look_ahead_has_met(
    engine: TorchEngine,
    machine: OpenMachine,
    folder_url: str,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    one = machine("one", folder_url)
    *_, variant = ChunkCache(engine, one, "naive").ingest(SYSTEM, [CHUNK])
    settled(one)
    if where == "disk":
        (path,) = one._disk.root.rglob(f"{variant.key.digest}.kv")
        store = machine("one", folder_url)
    else:
        path = object_of(Path(folder_url.removeprefix("file://")), variant.key)
        store = machine("other", folder_url)
    path.write_bytes(b"bad" + path.read_bytes()[3:])
    ahead_of_prompts(store, monkeypatch)
    cache = ChunkCache(engine, store, "naive", keep_missed=False)
    _, report = said(cache, SYSTEM, CHUNK, text(20, 1))
    assert len([told for told in report.incidents if variant.key.digest in told]) == 1
    _, report = said(cache, SYSTEM, CHUNK, text(20, 1))
    assert report.incidents == []


def test_a_look_ahead_keeps_what_it_met_for_whoever_asks(
    machine: OpenMachine, folder_url: str, make_variant: MakeVariant
) -> None:
    variant, sound = make_variant(), make_variant(context=("c0",))
    for one in (variant, sound):
        machine("one", folder_url).put(one)
    store, flaws = machine("one", folder_url), list[Flaw]()
    (path,) = store._disk.root.rglob(f"{variant.key.digest}.kv")
    path.write_bytes(b"bad")
    store.look_ahead([variant.key.family])
    assert store.stats()[-1].quarantined == 1
    assert [info.key for info in store.variants(variant.key.family, flaws)] == [sound.key]
    assert [flaw.where for flaw in flaws] == [str(path)]
    assert store.variants(variant.key.family, flaws)
    assert len(flaws) == 1


def test_what_is_begun_is_given_up_where_something_fails_behind_it(
    machine: OpenMachine, folder_url: str, make_variant: MakeVariant, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = machine("one", folder_url), machine("other", folder_url)
    variants = [make_variant((number, 1, 2)) for number in range(3)]
    for variant in variants:
        one.put(variant)
    settled(one)
    for variant in variants:
        assert other.variants(variant.key.family)
    begin, begun = other._arrivals.begin, list[Arrival | None]()

    def fails(place: ObjectPlace, *, ahead: bool = False) -> Arrival | None:
        if len(begun) == 2:
            raise RuntimeError("no more")
        begun.append(begin(place, ahead=ahead))
        return begun[-1]

    monkeypatch.setattr(other._arrivals, "begin", fails)
    other.near(lambda: [variant.key for variant in variants])
    wait_until(lambda: other._nearing._threads._value == NEARING, 60)
    assert len(begun) == 2
    assert other._arrivals._coming == {}


def test_what_did_not_come_in_time_is_begun_again_ever_more_seldom(
    machine: OpenMachine,
    far: S3Bucket,
    network: Proxy,
    make_variant: MakeVariant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By itself: what is small comes all the same, so the bucket as a whole is not left alone."""
    monkeypatch.setattr(module, "LOOK_S", 20.0)
    variant = make_variant()
    one, other = machine("one", far.url), machine("other", far.url)
    one.put(variant)
    settled(one)
    now = [0.0]
    monkeypatch.setattr(catalog, "monotonic", lambda: now[0])

    def fetched() -> bool:
        """As a prompt does; the bucket's own pause is over."""
        other._bucket.reading.succeeded()
        network.requests.clear()
        return bool(other.variants(variant.key.family)) and other.get(variant.key) is not None

    for pause in (catalog.LATE_S, 2 * catalog.LATE_S):
        assert other.variants(variant.key.family)
        network.fault = lambda method, path: "stall"
        with monkeypatch.context() as hurry, pytest.raises(RemoteError, match="did not come"):
            hurry.setattr(arrivals, "FETCH_S", 0.2)
            fetched()
        network.fault = lambda method, path: ""
        now[0] += pause - 1
        assert not fetched()
        assert sum(variant.key.digest in path for _, path in network.requests) <= 1, "its head at most"
        now[0] += 2
    assert fetched()
