from __future__ import annotations

from pathlib import Path

import pytest

from app.cli.output import LATER
from app.ingestion.room import OTHERS_GO
from app.library import Library
from app.models import Models
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import fill


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_folder: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".env").write_text(f"RAGCACHE_MODEL={tiny_folder}\nRAGCACHE_DTYPE=float32\nRAGCACHE_DEVICE=cpu\n")
    return make_run(capsys, monkeypatch, "--data-dir", str(tmp_path / "data"), "--cache-dir", str(tmp_path / "cache"))


@pytest.mark.slow
def test_warm_then_stats_then_prune(
    run: Run, library: Library, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection = fill(library, models)
    cold = run("cache", "stats", "--json").json
    assert cold["kinds"]["referenced"] == {"entries": 0, "bytes": 0}
    ran = run("cache", "warm", "-c", "default")
    assert ran.out.startswith("default: 5 KV variants computed (")
    assert ran.out.endswith(" for 5 chunks of 2 documents\n")
    assert run("cache", "warm", "--json").json["computed"] == 0
    told = run("cache", "stats", "--json").json
    assert told["collections"][0] | {"bytes": 1} == {
        "name": "default", "chunks": 5, "cached": 5, "entries": 5, "bytes": 1, "pinned": 0
    }  # fmt: skip
    assert [(one["tier"], one["entries"]) for one in told["tiers"]] == [("ram", 0), ("disk", 6)]
    monkeypatch.setenv("RAGCACHE_EVICTION", "ram=lru,disk=craft")
    assert [one["order"] for one in run("cache", "stats", "--json").json["tiers"]] == ["lru", "craft"]
    monkeypatch.setenv("RAGCACHE_EVICTION", "bogus")
    refused = run("cache", "stats")
    assert refused.code == 1 and "bogus" in refused.err
    monkeypatch.delenv("RAGCACHE_EVICTION")
    library.catalog.documents.delete(collection, [1])  # as a process that is killed behind it
    shown = run("cache", "stats").out
    assert "\nunreferenced         2  " in shown
    assert "\ndefault          3       3        3  " in shown
    # Its own two, and the three of the other document that were computed behind them.
    told = run("cache", "prune", "--dry-run").out.splitlines()
    assert ["unreferenced", "KV", "5"] in [line.split()[:3] for line in told]
    pruned = run("cache", "prune", "--json").json
    assert (pruned["unreferenced"]["entries"], pruned["dry_run"]) == (5, False)
    left = run("cache", "prune", "--all-engines").out.splitlines()
    assert left[0].split() == ["deleted", "files", "size"]
    assert all(" 0" in line for line in left[1:])


def test_what_is_pinned_is_not_evicted(run: Run, library: Library, models: Models) -> None:
    fill(library, models, kv=True)
    pinned = run("cache", "pin", "--json").json
    assert (pinned["collection"], pinned["pinned"]["entries"]) == ("default", 5)
    assert run("cache", "stats", "--json").json["collections"][0]["pinned"] == pinned["pinned"]["bytes"]
    assert run("cache", "evict", "-c", "default").out == "default: 0 entries evicted (0 B)\n"
    assert run("cache", "unpin").out.startswith("default: 5 entries unpinned (")
    assert run("cache", "evict", "--json").json["evicted"] == pinned["pinned"]
    assert run("cache", "stats", "--json").json["collections"][0]["cached"] == 0


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ls", 0), ("ls -c x", 1), ("show 1", 1), ("show --chunk 1", 1), ("cache stats", 0), ("cache verify", 0),
        ("cache prune --dry-run", 0), ("rm -c x --all --dry-run", 1), ("rm -c x 1 --dry-run", 1),
    ],
)  # fmt: skip
def test_looking_makes_no_catalog(run: Run, tmp_path: Path, command: str, code: int) -> None:
    ran = run(*command.split())
    assert ran.code == code
    assert code == 0 or ran.err.startswith("error: no ")
    assert not (tmp_path / "data").exists()


def test_whoever_is_told_to_make_room_for_kv_is_told_all_that_goes(run: Run) -> None:
    """It takes more than that of other models (test_other_engines_and_systems_go_when_asked and the one behind it)."""
    told = " ".join(run("cache", "prune", "--help").out.split())
    for what in ("other models", "other system prompts", "of conversations"):
        assert what in told
        assert what in OTHERS_GO
    assert "no chunk of any collection needs" in told
    assert "what no collection has" in OTHERS_GO


def test_verify_fails_on_flaws(run: Run, library: Library, models: Models, tmp_path: Path) -> None:
    assert run("cache", "verify").out == "0 entries read (0 B), 0 bad\n"
    fill(library, models, kv=True)
    ran = run("cache", "verify", "--json")
    assert (ran.code, ran.json["entries"], ran.json["flaws"]) == (0, 6, [])
    victim = next((tmp_path / "cache").rglob("*.kv"))
    victim.write_bytes(b"torn")
    ran = run("cache", "verify")
    assert ran.code == 1
    assert ran.out.startswith(f"✗ {victim}: ")
    assert ran.out.endswith("), 1 bad\n")
    assert run("cache", "verify").code == 0


@pytest.mark.slow
def test_a_chunk_that_cannot_be_computed_is_told(run: Run, library: Library, models: Models) -> None:
    fill(library, models, books={"/huge.txt": [" ".join(f"word{number}" for number in range(1500))]})
    ran = run("cache", "warm")
    assert ran.code == 1
    assert ran.out.startswith("✗ /huge.txt: ")
    ran = run("cache", "warm", "--json")
    assert (ran.code, ran.json["failed"][0]["source"]) == (1, "/huge.txt")


@pytest.mark.slow
def test_errors(run: Run, library: Library, models: Models, tmp_path: Path) -> None:
    collection = fill(library, models, kv=True)
    assert run("cache", "warm", "-c", "nope").err == "error: no collection 'nope'; there are: default\n"
    assert run("cache", "nope").code == run("cache", "prune", "--quarantine-days", "-1").code == 2
    with library.catalog.alone(collection):
        for command in ("warm", "prune"):
            ran = run("cache", command)
            assert (ran.code, ran.out) == (LATER, "")
            assert ran.err.startswith("error: another process is working on collection 'default'")
    mark = tmp_path / "cache" / "kv" / "index.mark"
    mark.unlink()
    mark.mkdir()  # where a file should be
    for command in ("verify", "warm"):
        ran = run("cache", command)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("error: cannot open the cache folder")
        assert ran.err.count("\n") == 1
