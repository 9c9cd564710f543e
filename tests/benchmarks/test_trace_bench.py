"""A trace of requests, replayed: by hand, and by what each cache must hold to."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from app.settings import load_settings
from benchmarks.trace import CHUNK, POLICIES, TraceBenchOptions
from benchmarks.trace.caches import CACHES, TraceCache
from benchmarks.trace.costs import TraceCosts
from benchmarks.trace.measurement import main, replayed
from benchmarks.trace.oracles import ORACLES, Belady, FixedSet
from benchmarks.trace.requests import Trace, TraceRequest, read_trace
from benchmarks.trace.stored import StoredPassages
from ragcache.errors import ConfigError
from ragcache.store.eviction import ORDERS

FIELDS = {
    "system", "policy", "capacity", "hit_rate", "ram_hit_rate", "disk_hit_rate", "tokens_total", "tokens_computed",
    "questions", "ttft_p50", "ttft_p99",
}  # fmt: skip
COSTS = TraceCosts(token=1.0, pair=0.0, load=0.0)
LOADING = TraceCosts(token=0.0, pair=0.0, load=1.0)


def write_trace(path: Path, *passages: list[int]) -> Path:
    """Of passages of ten tokens, behind a system prompt of 3 and before questions of 5."""
    lines = [
        {
            "t": at,
            "system": [[900 + at, 3]],
            "passages": [[one, 10] for one in read],
            "input_tokens": 8 + 10 * len(read),
        }
        for at, read in enumerate(passages)
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def replay(path: Path, costs: TraceCosts = COSTS, **options: object) -> dict[tuple[object, object], dict[str, object]]:
    asked = TraceBenchOptions(trace=path, **{"capacity": (1.0,), **options})  # type: ignore[arg-type]
    rows = replayed(read_trace(path), costs, asked, path.parent / "cache")
    assert not list((path.parent / "cache").glob("*")), "what was written is removed"
    assert all(set(row) == FIELDS for row in rows)
    return {(row["system"], row["policy"]): dict(row) for row in rows}


def test_an_example_by_hand(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [1, 2, 3], [1, 3, 2], [3, 2, 1], [1, 2, 4], [1, 2, 3])
    rows = replay(path, part=0.1, policies=("lru",))
    found = {one: row["tokens_computed"] for one, row in rows.items()}
    assert found["none", "unbounded"] == 150
    assert found["prefix", "unbounded"] == 150 - 10 - 20 - 30, "1; 1, 2; 1, 2, 3"
    assert found["prefix", "lru"] == 150 - 10 - 20, "room for four of them: 1, and 1, 2 at last"
    assert found["set", "unbounded"] == 150 - 30 - 30 - 30, "in whatever order"
    # Of each request but the first two chunks behind the first are linked, or the one, and a tenth is computed again.
    assert found[CHUNK, "lru"] == 40 + 2 + 2 + 1 + 2
    assert rows[CHUNK, "lru"]["hit_rate"] == 11 / 15
    assert rows["none", "unbounded"]["questions"] == 25
    assert rows["none", "unbounded"]["ttft_p50"] == 35, "the question and three passages, a second each token"


def test_what_comes_first_may_count_for_nothing(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [1, 2], [3, 4], [1, 2], [4, 5])
    rows = replay(path, skip=0.5, part=0.0, policies=("lru", "oracle", "belady"))
    assert {row["tokens_total"] for row in rows.values()} == {40}
    assert [rows[CHUNK, one]["tokens_computed"] for one in ("lru", "oracle", "belady")] == [10, 10, 10]


def test_memory_over_the_disk_by_hand(tmp_path: Path) -> None:
    """Memory for one passage of four: what is asked for again at once comes from it, the rest of what was read from the
    disk, which alone takes time.
    """
    path = write_trace(tmp_path / "trace.jsonl", [1], [1], [2], [1], [3], [4], [1], [1])
    rows = replay(path, LOADING, part=0.0, policies=("lru", "s3fifo"), memory=0.25)
    tiered = rows[CHUNK, "lru"]
    assert (tiered["hit_rate"], tiered["ram_hit_rate"], tiered["disk_hit_rate"]) == (4 / 8, 2 / 8, 2 / 8)
    assert (tiered["ttft_p50"], tiered["ttft_p99"]) == (0, 10), "ten tokens from the disk, a second each"
    others = [row for case, row in rows.items() if case != (CHUNK, "lru")]
    assert {(row["ram_hit_rate"], row["disk_hit_rate"]) for row in others} == {(None, None)}
    (alone,) = (
        row for case, row in replay(path, LOADING, part=0.0, policies=("lru",)).items() if case == (CHUNK, "lru")
    )
    assert (alone["ram_hit_rate"], alone["disk_hit_rate"], alone["hit_rate"]) == (None, None, 4 / 8)
    assert alone["ttft_p50"] == 5, "half of them found it, and where there is one tier all is brought from it"


@pytest.mark.parametrize("policy", ORDERS)
def test_memory_finds_no_more_than_the_disk_has_and_the_disk_stays_within_its_room(policy: str, tmp_path: Path) -> None:
    tokens, asked = uses(4, count=300)
    trace, found, room = Trace([], tokens, 1), dict[float, list[str]](), int(0.3 * tokens.sum())
    for memory in (0.2, 1.0):
        stored = StoredPassages(trace, room, policy, memory, tmp_path / f"{memory}")
        found[memory] = [stored.find(TraceRequest((place,), 1))[0] for place in asked]
        ram, disk = stored.store.stats()
        for tier in (ram, disk):
            assert tier.budget is not None and 0 < tier.nbytes <= tier.budget
        assert ram.budget is not None and abs(ram.budget / footprint_of(tokens) - 0.3 * memory) < 0.001
        assert disk.nbytes == sum(path.stat().st_size for path in (tmp_path / f"{memory}").rglob("*.kv"))
        stored.store.check_integrity()
        stored.close()
    counts = {memory: Counter(tiers) for memory, tiers in found.items()}
    assert {"ram", "disk", ""} == set(counts[0.2]), "each of them was met"
    assert counts[0.2]["ram"] < counts[1.0]["ram"] and counts[0.2]["disk"] > counts[1.0]["disk"]


def footprint_of(tokens: np.ndarray) -> int:
    """Of all passages, in memory."""
    stored = StoredPassages(Trace([], tokens, 1), 2 * int(tokens.sum()), "lru")
    stored.find(TraceRequest(tuple(range(len(tokens))), 1))
    return stored.store.stats()[0].nbytes


def test_more_memory_than_there_is_room_is_told(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [1, 2])
    with pytest.raises(ConfigError, match=r"--memory 1\.5 is a share of each capacity: give 1 at most"):
        main(load_settings(None), TraceBenchOptions(trace=path, memory=1.5), tmp_path / "out.json")


def uses(seed: int, passages: int = 60, count: int = 3000) -> tuple[np.ndarray, list[int]]:
    drawn = random.Random(seed)
    tokens = np.array([drawn.randint(50, 300) for _ in range(passages)], np.int64)
    favours = [1 / (1 + place) for place in range(passages)]
    return tokens, drawn.choices(range(passages), favours, k=count)


class _Stored:
    """Passages in the real store, asked for one by one."""

    def __init__(self, tokens: np.ndarray, capacity: int, order: str):
        self.passages = StoredPassages(Trace([], tokens, 1), capacity, order)

    def ask(self, place: int) -> bool:
        return bool(self.passages.find(TraceRequest((place,), 1))[0])


def made(name: str, tokens: np.ndarray, capacity: int, asked: list[int]) -> TraceCache | _Stored:
    if name in ORDERS:
        return _Stored(tokens, capacity, name)
    return CACHES[name](tokens, capacity) if name in CACHES else ORACLES[name](tokens, capacity, asked, 0)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("share", [0.02, 0.2, 0.6])
def test_no_cache_holds_more_than_its_capacity(name: str, share: float) -> None:
    tokens, asked = uses(1)
    capacity = int(share * tokens.sum())
    cache, seen = made(name, tokens, capacity, asked), set[int]()
    for place in asked:
        if cache.ask(place):
            assert place in seen, "nothing is there that never was"
        seen.add(place)
        assert held(cache) <= capacity


def held(cache: TraceCache | _Stored) -> int:
    if isinstance(cache, _Stored):
        return sum(cache.passages.held)
    if isinstance(cache, Belady):
        return int(cache.tokens[cache._there].sum())
    if isinstance(cache, FixedSet):
        return int(cache.tokens[list(cache._there)].sum()) if cache._there else 0
    names = ("_there", "_small", "_main", "_window", "_probation", "_protected")
    queues = [getattr(cache, name) for name in names if hasattr(cache, name)]
    assert all(queue.total == sum(queue.values()) for queue in queues)
    return sum(queue.total for queue in queues)


@pytest.mark.parametrize(
    "name", [one for one in POLICIES if one != "tinylfu"]
)  # each of its parts is bounded by itself
def test_with_room_for_all_each_passage_is_lacking_once(name: str) -> None:
    tokens, asked = uses(2)
    cache = made(name, tokens, int(tokens.sum()), asked)
    hits = sum(map(cache.ask, asked))
    once = sum(count == 1 for count in Counter(asked).values())
    assert len(asked) - len(set(asked)) - once <= hits <= len(asked) - len(set(asked))


def test_belady_is_ahead_of_all_that_know_only_the_past() -> None:
    tokens, asked = uses(3)
    hits = {name: sum(map(made(name, tokens, int(tokens.sum()) // 5, asked).ask, asked)) for name in POLICIES}
    assert max(hits, key=hits.__getitem__) == "belady"
    assert hits["value"] > hits["lru"] > hits["fifo"]


def test_orders_by_hand() -> None:
    tokens = np.full(4, 10, np.int64)
    lfu = _Stored(tokens, 20, "lfu")
    assert [lfu.ask(place) for place in (0, 0, 1, 2, 0, 2, 1)] == [False, True, False, False, True, True, False]
    asked = [0, 1, 2, 0, 1, 2]
    belady = Belady(tokens, 20, asked, 0)
    assert [belady.ask(place) for place in asked] == [False, False, False, True, True, False], "2 is used last again"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"system": [], "passages": [[1, 0]], "input_tokens": 3}', "\x00"])
def test_what_is_no_trace_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.jsonl").write_text(text)
    with pytest.raises(ConfigError, match="trace"):
        read_trace(tmp_path / "trace.jsonl")
    with pytest.raises(ConfigError, match="is no trace: give JSON lines"):
        read_trace(tmp_path / "none")


def test_a_skip_that_leaves_nothing_is_told(tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [1, 2], [3, 4])
    with pytest.raises(ConfigError, match="--skip 1 leaves none of 2 requests"):
        main(load_settings(None), TraceBenchOptions(trace=path, skip=1.0), tmp_path / "out.json")


def test_it_is_measured_and_told(tiny_folder: Path, tmp_path: Path) -> None:
    path = write_trace(tmp_path / "trace.jsonl", [1, 2, 3], [3, 2, 1], [2, 9, 1])
    settings = load_settings(None, model=str(tiny_folder), cache_dir=tmp_path / "cache", dtype="float32")
    main(settings, TraceBenchOptions(trace=path, context=512, rounds=1), tmp_path / "out.json")
    told = json.loads((tmp_path / "out.json").read_text())
    assert all(set(row) == FIELDS for row in told["rows"])
    assert len(told["rows"]) == 3 + 5 * (2 + len(POLICIES))
    assert told["settings"]["load_s"] > 0 and told["settings"]["token_s"] + told["settings"]["pair_s"] > 0


def test_requests_are_what_the_lines_say(tmp_path: Path) -> None:
    trace: Trace = read_trace(write_trace(tmp_path / "trace.jsonl", [7, 7, 8], []))
    assert trace.requests == [TraceRequest((0, 1), 5), TraceRequest((), 5)]
    assert (list(trace.tokens), trace.system) == ([10, 10], 3)
