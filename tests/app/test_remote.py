"""The bucket as the application uses it: a folder stands for it here, and a port where nobody listens for one away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from app.cachecare import bucket_tier, prune
from app.cachecare.eviction import evict
from app.cachecare.warming import warm
from app.chat.contexts import ContextRequest, Contexts
from app.cli import doctor
from app.cli.findings import examine
from app.compose import opened
from app.library import Library
from app.library.kv import FileTally, border_around
from app.library.pinning import pin_collection
from app.library.removal import remove_documents
from app.models import Models
from app.settings import load_settings
from ragcache.cache import ChunkCache
from ragcache.errors import StoreError
from ragcache.loader.cake import CakeLoader
from ragcache.loader.threads import DiskThreads
from ragcache.store.remote import store as module
from ragcache.store.remote.store import SharedStore
from ragcache.types import VariantKey
from tests.app.cli.inside import Run, make_run
from tests.app.library.shelves import BOOKS, fill, make_settings
from tests.buckets import credentials
from tests.ports import held_port

Machine = Callable[[str], tuple[Library, Models]]
SETTLED_S = 60.0
TEXT, OVER = "The bell rang at noon.", "Nobody heard it."


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/bucket"


@pytest.fixture
def machine(tiny_folder: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Libraries of their own, over one bucket."""
    monkeypatch.setattr(module, "LOOK_S", 20.0)
    open_ones = []

    def of(name: str) -> tuple[Library, Models]:
        context = opened(make_settings(tiny_folder, tmp_path / name, remote=url, ram_bytes=0))
        open_ones.append(context)
        return context.__enter__()

    yield of
    for context in open_ones:
        context.__exit__(None, None, None)


def settled(models: Models) -> None:
    assert isinstance(models.store, SharedStore)
    assert models.store.settle(SETTLED_S)


def objects(tmp_path: Path) -> int:
    return len(list((tmp_path / "bucket").rglob("*.kv")))


def test_what_one_machine_has_computed_another_has(machine: Machine, tmp_path: Path) -> None:
    one, other = machine("one"), machine("other")
    done = list(warm(*one, fill(*one)))[-1]
    assert done.computed == 5
    settled(one[1])
    assert objects(tmp_path) == 6, "the System segment's too"
    again = list(warm(*other, fill(*other)))[-1]
    assert again.computed == 0


def test_pruning_ends_in_the_bucket_what_a_killed_removal_of_a_collection_began(
    machine: Machine, tmp_path: Path
) -> None:
    """Also within the border that was around it, and of the machine that computed it."""
    one, other = machine("one"), machine("other")
    theirs, (library, models) = fill(*one), other
    collection = fill(library, models)
    for border in ("", border_around(theirs), border_around(collection)):
        list(warm(*one, theirs, border))
    settled(one[1])
    assert objects(tmp_path) == 3 * 6
    library.catalog.collections.delete(collection)
    prune(library, models)
    settled(models)
    assert objects(tmp_path) == 3, "System segments"
    assert library.catalog.orphans.abandoned() == set()


def test_an_answer_brings_what_it_wants_from_the_bucket(machine: Machine) -> None:
    one, other = machine("one"), machine("other")
    list(warm(*one, fill(*one)))
    settled(one[1])
    texts = ["Rye flour takes more water.", "The dough rests overnight."]
    answers = []
    for _, models in (one, other, other):
        cache, template = models.cache, models.template
        segments = [template.system(), *map(template.chunk, texts), template.question("How much water?")]
        stream = cache.generate(segments, max_tokens=5, linker="naive")
        answers.append((list(stream), {chunk.tier for chunk in stream.report.chunks}))
        assert stream.report.incidents == []
        settled(models)
    assert [tokens for tokens, _ in answers] == [answers[0][0]] * 3
    tiers = [found for _, found in answers]
    assert tiers[0] == {"disk"}
    assert tiers[1] <= {"bucket", "disk"}, "what came ahead of the prompt may be on the disk by then"
    assert tiers[2] == {"disk"}


def test_a_document_that_is_deleted_leaves_the_bucket(machine: Machine, tmp_path: Path) -> None:
    """Also from a machine that has none of its KV."""
    one, other = machine("one"), machine("other")
    list(warm(*one, fill(*one)))
    settled(one[1])
    collection = fill(*other)
    rye = other[0].catalog.documents.find(collection, "/books/rye.txt")
    assert rye is not None
    remove_documents(*other, collection, [rye.id])
    settled(other[1])
    gone = {
        other[1].template.chunk(text).hash for text in ("Rye flour takes more water.", "The dough rests overnight.")
    }
    assert objects(tmp_path) < 6
    assert isinstance(other[1].store, SharedStore)
    assert not any(other[1].store.variants(family) for family in _families(other[1], gone))
    assert any(other[1].store.variants(family) for family in _families(one[1], {_system(one[1])}, system=""))


def test_a_text_that_a_context_cache_has_had_last_leaves_the_bucket(machine: Machine, tmp_path: Path) -> None:
    """With what another machine has computed over it."""
    one, (library, models) = machine("one"), machine("other")
    caches, collection = Contexts(library, models), fill(library, models, books={"/a.txt": [TEXT]})
    made, template = caches.create(ContextRequest([TEXT])), one[1].template
    assert len(list(one[1].cache.ingest(template.system(), [template.chunk(TEXT), template.chunk(OVER)]))) == 2
    settled(one[1])
    settled(models)
    assert objects(tmp_path) == 3, "the System segment's, the text's, and what was computed over it"
    remove_documents(library, models, collection, [one.id for one in library.catalog.documents.all(collection)])
    settled(models)
    assert objects(tmp_path) == 3, "the cache has the text"
    caches.expire(made.id)
    settled(models)
    assert objects(tmp_path) == 1


@pytest.mark.parametrize("killed", [True, False])
def test_pruning_ends_in_the_bucket_what_the_end_of_a_context_cache_began(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    """Of a text that a document has left to it, by a process that was killed or met a fault; here all is evicted."""
    library, models = machine("one")
    collection, caches = fill(library, models, books={"/a.txt": [TEXT, OVER]}, kv=True), Contexts(library, models)
    made = caches.create(ContextRequest([TEXT]))
    settled(models)
    ids = [one.id for one in library.catalog.documents.all(collection)]
    remove_documents(library, models, collection, ids)
    settled(models)
    left = objects(tmp_path)
    assert left >= 2, "the System segment's, the text's, and what was computed over it"

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt if killed else StoreError("the disk is away")

    with monkeypatch.context() as patch:
        for name in ("drop_chunk", "drop_seeing"):
            patch.setattr(models.store, name, fail)
        with pytest.raises(KeyboardInterrupt) if killed else nullcontext():
            caches.expire(made.id)
    settled(models)
    assert objects(tmp_path) == left
    for file in (tmp_path / "one" / "cache" / "kv").glob("*/*/*/*.kv"):
        file.unlink()
    prune(library, models)
    settled(models)
    assert objects(tmp_path) == 1
    assert library.catalog.orphans.abandoned() == set()


def test_what_is_evicted_leaves_the_bucket(machine: Machine, tmp_path: Path) -> None:
    """What this machine never had too, but not what another collection has."""
    one, other = machine("one"), machine("other")
    shelf, shared = fill(*one), {"/a.txt": BOOKS["/books/rye.txt"][:1]}
    list(warm(*one, shelf))
    settled(one[1])
    evicted = fill(*other)
    fill(*other, "beside", shared)
    assert evict(*other, evicted) == FileTally(), "nothing of it was on the disk"
    settled(other[1])
    assert objects(tmp_path) == 2, "the shared text's, and the System segment's"
    pin_collection(*one, shelf)
    assert evict(*one, shelf) == FileTally()
    settled(one[1])
    assert objects(tmp_path) == 2, "what is pinned stays there too"


def _system(models: Models) -> str:
    return models.template.system().hash


def _families(models: Models, chunks: set[str], system: str | None = None) -> list[str]:
    behind = _system(models) if system is None else system
    return [VariantKey(models.language.engine.spec.fingerprint, behind, (), chunk).family for chunk in chunks]


def test_the_doctor_looks_at_it(tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_bucket(load_settings(None, cache_dir=tmp_path)) == []
    (finding,) = examine(load_settings(None, cache_dir=tmp_path, remote=url), [doctor.check_bucket])
    assert finding.ok
    assert "can be listed, written to and read" in finding.detail
    assert not [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()], "nothing is left behind"
    with held_port() as port:
        for name, value in credentials(port).items():
            monkeypatch.setenv(name, value)
        away = load_settings(None, cache_dir=tmp_path, remote="s3://bucket/kv")
        (finding,) = examine(away, [doctor.check_bucket])
    assert not finding.ok
    assert "cannot be listed now" in finding.detail
    (finding,) = examine(load_settings(None, cache_dir=tmp_path, remote="ftp://x"), [doctor.check_bucket])
    assert not finding.ok
    assert "give s3://bucket/prefix" in finding.detail


def test_statistics_count_it(
    machine: Machine,
    tmp_path: Path,
    tiny_folder: Path,
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = machine("one")
    list(warm(*one, fill(*one)))
    settled(one[1])
    tier, complete = bucket_tier(one[0].settings)
    assert (tier.tier, tier.entries, complete) == ("bucket", 6, True)
    assert tier.nbytes == sum(path.stat().st_size for path in (tmp_path / "bucket").rglob("*.kv"))
    (tmp_path / ".env").write_text(f"RAGCACHE_MODEL={tiny_folder}\nRAGCACHE_DTYPE=float32\nRAGCACHE_DEVICE=cpu\n")
    monkeypatch.chdir(tmp_path)
    folders = ["--data-dir", str(tmp_path / "one" / "data"), "--cache-dir", str(tmp_path / "one" / "cache")]
    run: Run = make_run(capsys, monkeypatch, *folders)
    monkeypatch.setenv("RAGCACHE_REMOTE", url)
    told = run("cache", "stats", "--json").json
    assert [(row["tier"], row["entries"]) for row in told["tiers"]][-1] == ("bucket", 6)
    with held_port() as port:
        for name, value in credentials(port).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("RAGCACHE_REMOTE", "s3://bucket/kv")
        away = run("cache", "stats")
    assert away.code == 0
    assert "cannot be listed now" in away.err
    assert "bucket" not in away.out


def test_cake_loads_from_the_bucket(machine: Machine) -> None:
    one, other = machine("one"), machine("other")
    list(warm(*one, fill(*one)))
    settled(one[1])
    threads = DiskThreads(2, "test-read", 60.0)
    loader = CakeLoader(threads, claims=False)  # or all may be computed before its threads begin
    texts = ["The lamp was lit in 1855.", "Its keeper lived alone.", "Ships were warned by a bell."]
    template = one[1].template
    segments = [template.system(), *map(template.chunk, texts), template.question("When?")]
    plain = ChunkCache(one[1].language.engine, one[1].store, "naive", keep_missed=False)
    cake = ChunkCache(one[1].language.engine, other[1].store, "naive", keep_missed=False, loader=loader)
    expected = list(plain.generate(segments, max_tokens=5))
    assert list(cake.generate(segments, max_tokens=5)) == expected
    loader.close()
