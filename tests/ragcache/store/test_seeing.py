"""Rows tell which entries had seen a text, as the headers do, without a look at these."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ragcache.address import MOST_SEEN
from ragcache.store import DiskTier, index_seen
from ragcache.store.frame import key_of, read_fields, seen_of
from ragcache.store.layout import FolderLayout, written_beside
from ragcache.types import Lineage, Pass, Span, Variant, VariantKey, digest_of, ids_hash
from tests.ragcache.store.conftest import build_variant
from tests.ragcache.store.folders import altered, opened, told
from tests.ragcache.store.test_format import first_version, framed, header_of, packed, with_header

TEXTS = [ids_hash((9, number)) for number in range(12)]
LONG = tuple(ids_hash((8, number)) for number in range(MOST_SEEN + 10))
GONE = [["unknown"], TEXTS[:1], TEXTS[3:5], TEXTS, list(LONG[:1])]


def having_seen(number: int, context: tuple[str, ...], seen: tuple[str, ...], complete: bool = True) -> Variant:
    passes = (Pass(Span(0, 1), tuple(f"{number}-{place}" for place, _ in enumerate(context))),)
    variant = build_variant((number,), context=context)
    key = replace(variant.key, history=digest_of(*passes[0].behind))
    return replace(variant, key=key, lineage=Lineage(passes, (*seen, *context), complete))


def drawn(count: int = 40) -> list[Variant]:
    """Behind two texts at most, having seen some more; behind none; a plain prefill's; some that do not tell all."""
    lots = random.Random(5)
    plain = ((), tuple(TEXTS[:2]), LONG)  # of the last, a lineage tells no more than the end
    found = [build_variant((100 + place,), context=texts, plain=True) for place, texts in enumerate(plain)]
    for number in range(count):
        texts = lots.sample(TEXTS, lots.randrange(1, 6))
        found.append(having_seen(number, tuple(texts[:2]), tuple(texts[2:]), complete=number % 9 != 0))
    return found


def filled(root: Path) -> DiskTier:
    store = opened(root)
    for variant in drawn():
        store.put(variant)
    return store


def by_headers(root: Path, chunks: list[str]) -> set[VariantKey]:
    """The slow, obvious reference."""
    found = set()
    for path in root.glob("*/*/*/*.kv"):
        if (fields := read_fields(path)) is None:
            continue
        seen, whole = seen_of(fields)
        if not (whole and seen.isdisjoint(chunks)):
            found.add(key_of(fields))
    return found


def one_name_for_all(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr(index_seen, "_short", lambda name: 7)
    (root / "index.sqlite").unlink()


def page_by_page(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    monkeypatch.setattr(index_seen, "_NAMES", index_seen._NAMES.replace("LIMIT 1000", "LIMIT 3"))


def made_anew(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    (root / "index.sqlite").unlink()


def harmed(monkeypatch: pytest.MonkeyPatch, root: Path, sql: str) -> None:
    altered(root, sql)


ODD = ["UPDATE entries SET seen = 'no names'", "UPDATE entries SET seen = x'0102'", "UPDATE entries SET seen = NULL"]
ROWS = [page_by_page, made_anew, one_name_for_all, *(partial(harmed, sql=sql) for sql in ODD)]


@pytest.mark.parametrize("change", [lambda monkeypatch, root: None, *ROWS])
def test_rows_tell_what_headers_do(
    root: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[pytest.MonkeyPatch, Path], None]
) -> None:
    filled(root)
    change(monkeypatch, root)
    store = opened(root)
    for chunks in GONE:
        found = store.seeing(chunks)
        assert set(found) == by_headers(root, chunks)
        assert len(found) == len(set(found))
    assert 0 < len(store.seeing(GONE[0])) < len(store.seeing(GONE[1])) < len(store.seeing(TEXTS))


def test_headers_are_read_of_what_goes_alone(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also by an index that was made of the files."""
    store, read = filled(root), list[Path]()

    def noted(path: Path) -> dict[str, Any] | None:
        read.append(path)
        return read_fields(path)

    monkeypatch.setattr(index_seen, "read_fields", noted)
    for _ in range(2):
        assert len(store.seeing(TEXTS[:1])) == len(read) < len(drawn()) / 2
        read.clear()
        (root / "index.sqlite").unlink()
        store = opened(root)


def test_rows_are_the_same_when_they_are_made_of_the_files(root: Path) -> None:
    wanted = "SELECT digest, seen FROM entries ORDER BY digest"
    filled(root)
    rows = told(root, wanted)
    assert {type(seen) for _, seen in rows} == {bytes, type(None)}
    (root / "index.sqlite").unlink()
    opened(root)
    assert told(root, wanted) == rows


def test_an_index_that_is_made_anew_in_between_loses_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have other numbers, also where those that were read last are the last."""
    store = filled(root)
    page_by_page(monkeypatch, root)
    wanted, read, harms = by_headers(root, TEXTS), store._index._file.read, [1, 2, 3]

    def beside(sql: str, values: tuple[object, ...] = ()) -> object:
        rows = read(sql, values)
        if sql == index_seen._NAMES and harms and harms.pop(0):
            altered(root, "UPDATE entries SET rowid = rowid + 1000 WHERE rowid <= (SELECT max(rowid) / 2 FROM entries)")
            altered(root, "UPDATE entries SET rowid = rowid - (SELECT min(rowid) - 1 FROM entries)")
            altered(root, "UPDATE folder SET made = made + 1")
        return rows

    monkeypatch.setattr(store._index._file, "read", beside)
    assert set(store.seeing(TEXTS)) == wanted
    assert not harms


def test_what_another_writer_has_only_announced_is_asked_of_the_file(root: Path) -> None:
    """Its row tells of the new file, and the old one lies there still."""
    store = filled(root)
    with written_beside(FolderLayout(root).writing / "one.kv", []) as temporary:
        altered(root, f"UPDATE entries SET seen = x'', coming = '{temporary.name}'")
        assert set(store.seeing(TEXTS[:1])) == by_headers(root, TEXTS[:1])


def test_an_entry_goes_by_its_row_where_its_header_is_torn(root: Path) -> None:
    store = filled(root)
    wanted = store.seeing(TEXTS)
    for path in root.glob("*/*/*/*.kv"):
        path.write_bytes(b"torn")
    gone = store.drop_seeing(TEXTS)
    assert set(gone) == set(wanted)
    assert not {key.digest for key in gone} & {path.stem for path in root.glob("*/*/*/*.kv")}
    assert len(store.verify()) == len(drawn()) - len(gone)


def test_a_file_that_cannot_be_read_keeps_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes by its row, which needs no header."""
    store = filled(root)
    wanted = store.seeing(TEXTS[:1])
    bad = {f"{key.digest}.kv" for key in wanted[::2]}

    def failing(path: Path) -> dict[str, Any] | None:
        if path.name in bad:
            raise OSError(5, "the disk fails", str(path))
        return read_fields(path)

    monkeypatch.setattr(index_seen, "read_fields", failing)
    assert store.seeing(TEXTS[:1]) == wanted
    assert store.drop_seeing(TEXTS[:1]) == wanted
    assert by_headers(root, TEXTS[:1]) == set()


def test_files_of_the_first_version_and_forged_ones(tmp_path: Path) -> None:
    """The first version tells of its context alone; a forged header of anything."""
    store = DiskTier(tmp_path, None, "raw")
    variants = [having_seen(number, (TEXTS[number],), ()) for number in range(4)]
    plain = build_variant((50,), context=(TEXTS[0],), plain=True)
    for variant in (*variants, plain):
        store.put(variant)
    paths = [next(tmp_path.rglob(f"{one.key.digest}.kv")) for one in (*variants, plain)]
    for path, variant in zip(paths, (*variants, plain), strict=True):
        if variant in (variants[0], plain):
            path.write_bytes(first_version(packed(variant)))
    paths[1].write_bytes(with_header(paths[1].read_bytes(), seen=[TEXTS[5], 3, None]))
    fields = header_of(paths[2].read_bytes()) | {"seen": ["\ud800"]}
    paths[2].write_bytes(framed(paths[2].read_bytes(), json.dumps(fields).encode()))
    paths[3].write_bytes(with_header(paths[3].read_bytes(), seen=[f"{number}" for number in range(5000)]))
    (tmp_path / "index.sqlite").unlink()
    store = DiskTier(tmp_path, None, "raw")
    for chunks in (["unknown"], ["\ud800"], ["4999"], TEXTS[:1], TEXTS[1:2], TEXTS[5:6]):
        assert set(store.seeing(chunks)) == by_headers(tmp_path, chunks)
    assert told(tmp_path, "SELECT count(*) FROM entries WHERE length(seen) > 9000") == [(0,)]
