"""What an ingest makes of files that come, change and go."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from app.errors import IngestError
from app.ingestion import IngestOptions, IngestProgress, writer
from app.ingestion.ingest import Ingest
from app.ingestion.writer import TOGETHER
from app.library import Library
from app.library.catalog.records import Document
from app.loaders.base import Parsed
from app.models import Models
from app.settings import KvMode
from splitter import SplitterError
from splitter.base import below_headings
from tests.app.ingestion.conftest import Run
from tests.app.loaders.files import write_mixed_folder, write_pdf


def documents(library: Library) -> dict[str, Document]:
    collection = library.catalog.collections.get("default")
    return {Path(one.source).name: one for one in library.catalog.documents.all(collection)}


def texts(library: Library, name: str) -> list[str]:
    return [chunk.text for chunk in library.catalog.chunks.of_document(documents(library)[name].id)]


def write(docs: Path, **said: str) -> None:
    for name, text in said.items():
        (docs / f"{name}.txt").write_text(text)


def test_chunks_of_every_format_know_their_place(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    result = ingest(write_mixed_folder(docs))
    assert (result.added, result.failed, result.replaced) == (18, (), 0)
    found = documents(library)
    assert len(found) == 18
    assert all(one.state == "ready" and Path(one.source).is_absolute() for one in found.values())
    for one in found.values():
        layout = library.catalog.documents.layout(one.id)
        for chunk in library.catalog.chunks.of_document(one.id):
            assert layout.text[chunk.start : chunk.end] == chunk.text
            assert chunk.token_hash == models.template.chunk(chunk.text).hash
    (chunk,) = [one for one in library.catalog.chunks.of_document(found["keeper.pdf"].id) if "1884" in one.text]
    assert (2, "page") in chunk.pages
    assert {box[0] for box in chunk.boxes} == {page for page, _ in chunk.pages}


def test_chunks_place_what_is_quoted_of_them_as_their_document_does(ingest: Run, library: Library, docs: Path) -> None:
    write_pdf(docs / "book.pdf", [[f"Page {number}.", *["Some words of it."] * 9] for number in range(1, 6)])
    ingest()
    (document,) = documents(library).values()
    whole = library.catalog.documents.layout(document.id)
    parsed = Parsed(whole.text, "", "", whole.pages, whole.lines)
    for chunk in library.catalog.chunks.of_document(document.id):
        known = library.catalog.chunks.layout(chunk.id)
        assert known is not None
        assert known[0] == chunk
        own = Parsed("", "", "", known[1].pages, known[1].lines)
        for start in range(chunk.start, chunk.end, 7):
            end = min(start + 30, chunk.end)
            assert own.locate(start, end) == parsed.locate(start, end)
            assert own.locate(start, end)


def test_a_file_of_a_far_future_stops_nothing(ingest: Run, docs: Path) -> None:
    write(docs, a="One.", b="Two.")
    os.utime(docs / "a.txt", ns=(0, 13_569_465_600 * 10**9))  # of the year 2400: more than a database can keep
    assert (docs / "a.txt").stat().st_mtime_ns > 1 << 63
    assert ingest().added == 2
    assert ingest().unchanged == 2


def test_what_is_unchanged_is_not_read_again(ingest: Run, docs: Path) -> None:
    write(docs, a="One.", b="Two.")
    assert ingest().added == 2
    before = (docs / "a.txt").stat()
    (docs / "a.txt").write_text("Eno.")
    os.utime(docs / "a.txt", ns=(before.st_atime_ns, before.st_mtime_ns))
    again = ingest()
    assert (again.unchanged, again.added, again.replaced) == (2, 0, 0)


def test_a_changed_file_takes_the_place_of_its_older_version(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, a="The lamp is red.", b="The bell is old.")
    ingest()
    before = documents(library)
    write(docs, a="The lamp is green.")
    result = ingest()
    assert (result.added, result.replaced, result.unchanged) == (0, 1, 1)
    assert texts(library, "a.txt") == ["The lamp is green."]
    assert {name: one.id for name, one in documents(library).items()} == {name: one.id for name, one in before.items()}


def test_a_file_that_was_only_touched_is_compared_once(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, a="The lamp is red.")
    ingest()
    (old,) = library.catalog.chunks.of_document(documents(library)["a.txt"].id)
    os.utime(docs / "a.txt", ns=(5, 5))
    result = ingest()
    assert (result.unchanged, result.replaced) == (1, 0)
    assert documents(library)["a.txt"].mtime_ns == 5
    assert library.catalog.chunks.of_document(documents(library)["a.txt"].id) == [old]


def test_a_failed_file_is_told_and_skipped_until_it_changes(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, good="Words.")
    (docs / "bad.pdf").write_bytes(b"%PDF-1.7 nothing")
    first = ingest()
    assert (first.added, len(first.failed)) == (1, 1)
    assert first.failed[0].source == str(docs / "bad.pdf")
    assert "is damaged" in first.failed[0].reason
    second = ingest()
    assert (second.skipped, second.unchanged, second.failed) == (1, 1, ())
    assert any("--retry-failed" in note for note in second.notes)
    third = ingest(retry_failed=True)
    assert (third.skipped, len(third.failed)) == (0, 1)
    bad = documents(library)["bad.pdf"]
    assert (bad.state, bad.attempts) == ("failed", 2)
    write_pdf(docs / "bad.pdf", [["Sound now."]])
    assert (ingest().added, documents(library)["bad.pdf"].state) == (1, "ready")


def test_a_document_whose_file_went_bad_is_found_no_more(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, a="Words.")
    ingest()
    (docs / "a.txt").write_bytes(b"")
    result = ingest()
    assert "is empty" in result.failed[0].reason
    assert texts(library, "a.txt") == []
    assert documents(library)["a.txt"].state == "failed"


def test_a_file_out_of_reach_leaves_its_document_as_it_is(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, a="Words.")
    ingest()
    (docs / "a.txt").unlink()
    result = ingest(docs / "a.txt", docs / "never.txt")
    assert [failure.reason.partition(":")[0] for failure in result.failed] == ["does not exist"] * 2
    assert [failure.reason.endswith("; its older version stays") for failure in result.failed] == [True, False]
    assert texts(library, "a.txt") == ["Words."]
    assert set(documents(library)) == {"a.txt"}


def test_pruning_takes_what_is_gone_and_nothing_else(ingest: Run, library: Library, docs: Path) -> None:
    for folder in ("in", "out"):
        (docs / folder).mkdir()
        for name in "ab":
            (docs / folder / f"{folder}_{name}.txt").write_text(f"Words {folder} {name}.")
    ingest()
    (docs / "in" / "in_a.txt").unlink()
    (docs / "out" / "out_a.txt").unlink()
    assert ingest(docs / "in").pruned == 0
    result = ingest(docs / "in", prune=True, glob=("*.md",))
    assert result.pruned == 1
    assert set(documents(library)) == {"in_b.txt", "out_a.txt", "out_b.txt"}
    for path in (docs / "out").iterdir():
        path.unlink()
    (docs / "out").rmdir()
    kept = ingest(docs / "out", prune=True)
    assert kept.pruned == 0
    assert any("is not there or not mounted, so the documents below it stay" in note for note in kept.notes)
    assert ingest(docs, prune=True).pruned == 2
    assert set(documents(library)) == {"in_b.txt"}


def test_a_dry_run_tells_and_writes_nothing(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    write(docs, a="One.", b="Two.", c="Three.")
    rehearsed = Ingest(library, models, None, IngestOptions(dry_run=True)).run([docs])
    assert (rehearsed.added, rehearsed.chunks > 0, rehearsed.dry_run) == (3, True, True)
    assert library.catalog.collections.all() == []
    ingest()
    before = documents(library)
    write(docs, a="Changed.", d="")
    (docs / "b.txt").unlink()
    told = ingest(dry_run=True, prune=True)
    assert (told.added, told.replaced, told.unchanged, told.pruned, len(told.failed)) == (0, 1, 1, 1, 1)
    assert documents(library) == before


@pytest.mark.slow
def test_a_document_larger_than_a_batch_and_many_smaller_ones(ingest: Run, library: Library, docs: Path) -> None:
    number = 3 * TOGETHER
    write(docs, b_large="\n\n".join(f"Entry {line}. " + "The fog came in again. " * 40 for line in range(number)))
    for name in range(5):
        write(docs, **{f"a{name}": f"Small {name}.", f"c{name}": f"Late {name}."})
    result = ingest(splitter="fixed")
    assert result.chunks > number
    ids = {name: [one.id for one in library.catalog.chunks.of_document(document.id)]
           for name, document in documents(library).items()}  # fmt: skip
    assert sum(map(len, ids.values())) == result.chunks
    in_order = [one for name in sorted(ids) for one in ids[name]]
    assert in_order == sorted(in_order)


def test_the_vectors_are_those_of_the_embedder(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    for name in range(7):
        write(docs, **{f"n{name}": f"Book {name} " + "has many words. " * name})
    ingest()
    collection = library.catalog.collections.get("default")
    for _, said, vectors in library.catalog.source(collection).added(0):
        texts = [text.split("\n", 1)[1] for text in said]  # below the title, which only words are found by
        np.testing.assert_allclose(vectors, models.embedder.embed(texts), atol=1e-5)
    found = library.searcher(collection).search("Book 3", 7)
    assert len(found) == 7


def test_chunks_that_are_read_in_parts_are_told(ingest: Run, library: Library, models: Models, docs: Path) -> None:
    """The language model counts these as few tokens, and the embedder as many."""
    (docs / "long.md").write_text("# Ferries\n\n" + "at noon. " * 110)
    (docs / "short.md").write_text("# Bread\n\nRye bread rests for a day.")
    library.settings = library.settings.model_copy(update={"chunk_tokens": 800})
    result = ingest()
    (note,) = result.notes
    assert note.startswith("the embedder reads 256 tokens at once: 1 longer chunks were embedded in parts")
    (chunk,) = library.catalog.chunks.of_document(documents(library)["long.md"].id)
    collection = library.catalog.collections.get("default")
    vectors = {one: vector for ids, _, vectors in library.catalog.source(collection).added(0)
               for one, vector in zip(ids.tolist(), vectors, strict=True)}  # fmt: skip
    expected = models.embedder.embed([below_headings(chunk.heading, chunk.text)])[0]
    np.testing.assert_allclose(vectors[chunk.id], expected, atol=1e-5)


def test_a_file_with_two_ways_to_it_is_one_document(ingest: Run, library: Library, docs: Path) -> None:
    (docs / "real").mkdir()
    write(docs / "real", a="Words.")
    (docs / "link").symlink_to("real")
    assert ingest(docs / "link").added == 1
    assert ingest(docs / "real", docs / "real" / "a.txt").unchanged == 1
    assert documents(library)["a.txt"].source == str(docs / "real" / "a.txt")


def test_the_folders_of_the_program_are_no_documents(ingest: Run, library: Library, docs: Path) -> None:
    """Ingesting all that one has must not ingest what was made of it."""
    settings = library.settings
    write(docs, a="Words.")
    ingest(docs)
    write(settings.data_dir, b="Words of an index.")
    result = ingest(settings.data_dir.parent)
    assert (result.added, result.failed) == (0, ())
    assert f"{settings.data_dir} is left out: ragcache keeps its own files there" in result.notes
    assert [*documents(library)] == ["a.txt"]


def test_files_that_no_loader_reads_are_told(ingest: Run, docs: Path) -> None:
    write(docs, a="Words.")
    (docs / "letter.pages").write_bytes(b"PK")
    (note,) = ingest(docs).notes
    assert "1 file is left out, since no loader reads .pages (1)" in note


def test_another_splitter_is_for_what_comes(ingest: Run, library: Library, docs: Path) -> None:
    write(docs, a="Words.")
    ingest()
    write(docs, b="More words.")
    result = ingest(splitter="fixed")
    assert any("from now on" in note for note in result.notes)
    with pytest.raises(SplitterError, match="unknown splitter 'nope'"):
        ingest(splitter="nope")
    assert library.catalog.collections.get("default").splitter == "fixed"


def test_progress_reaches_the_end(library: Library, models: Models, docs: Path) -> None:
    write(docs, a="One.", b="Two two.", c="")
    seen: list[IngestProgress] = []
    Ingest(library, models, library.collection_or_new("default"), IngestOptions(kv="on-use"), seen.append).run([docs])
    assert [one.files for one in seen] == [1, 2, 3]
    assert seen[-1] == IngestProgress(3, 3, 12, 12, 1)


@pytest.mark.parametrize("kv", ["on-use", "eager"])
def test_a_long_document_tells_how_far_it_is(
    library: Library, models: Models, docs: Path, kv: KvMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "TOGETHER", 4)
    monkeypatch.setattr(writer, "STEP", 3)
    long = " ".join(f"In year {year} the keeper of the light wrote a line." for year in range(200))
    write(docs, a="Short.", b=long, c="Last.")
    seen, options = list[IngestProgress](), IngestOptions(kv=kv)
    result = Ingest(library, models, library.collection_or_new("default"), options, seen.append).run([docs])
    within = [one.nbytes for one in seen if one.files == 1][1:]
    assert len(within) >= (result.chunks - 2) // 3 if kv != "eager" else len(within) >= result.chunks - 2
    assert [one.nbytes for one in seen] == sorted(one.nbytes for one in seen)
    assert within[0] < 6 + len(long) / 2 < within[-1] < 6 + len(long)
    assert seen[-1] == IngestProgress(3, 3, 11 + len(long), 11 + len(long), 0)


def test_options_that_cannot_be_are_refused(library: Library, models: Models) -> None:
    with pytest.raises(IngestError, match="workers=0"):
        IngestOptions(workers=0)
    with pytest.raises(IngestError, match="need a collection"):
        Ingest(library, models, None)
