"""Splitters with settings, and those of others: kept with the collection, and trusted where they are named."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from app.ingestion import IngestOptions
from app.ingestion.ingest import Ingest
from app.library import Library
from app.library.inspection import show_document
from app.models import Models
from app.settings import Settings
from splitter import SPLITTERS, SplitterError
from splitter.documents import KINDS, way
from tests.app.ingestion.conftest import Run
from tests.app.loaders.files import write_mixed_folder

SENTENCES = "llama_index.core.node_parser.SentenceSplitter:chunk_size=20,chunk_overlap=0"
STRANGE = "tests.splitter.parsers.Strange:way=whole"
PARAGRAPHS = "semantic:granularity=paragraph"


def splitter_of(library: Library) -> str:
    return library.catalog.collections.get("default").splitter


def chunks(library: Library, name: str) -> list[str]:
    documents = library.catalog.documents.all(library.catalog.collections.get("default"))
    (found,) = [one for one in documents if Path(one.source).stem == name]
    return [chunk.text for chunk in library.catalog.chunks.of_document(found.id)]


def later(library: Library, models: Models, **changes: object) -> Library:
    """As another process opens it."""
    settings: Settings = library.settings.model_copy(update=changes)
    return Library(settings, library.catalog, models)


@pytest.mark.parametrize("spec", [PARAGRAPHS, SENTENCES])
def test_later_ingests_cut_as_the_first(library: Library, models: Models, docs: Path, ingest: Run, spec: str) -> None:
    said = " ".join(f"Sentence {number} has some words in it." for number in range(12))
    (docs / "a.txt").write_text(said)
    ingest(splitter=spec)
    first = chunks(library, "a")
    assert (splitter_of(library), " ".join(first)) == (spec, said)
    assert (len(first) > 3) == (spec == SENTENCES)
    (docs / "b.txt").write_text(said)
    other = later(library, models)
    for again in (None, spec):
        options = IngestOptions(kv="on-use", workers=1, splitter=again)
        result = Ingest(other, models, other.collection_or_new(), options).run([docs])
        assert (result.failed, result.ways) == ((), {})
        assert not any("from now on" in note for note in result.notes)
    assert chunks(library, "b") == first


def test_a_new_collection_has_that_of_the_settings(library: Library, models: Models) -> None:
    assert later(library, models, splitter=SENTENCES).collection_or_new("new").splitter == SENTENCES
    with pytest.raises(SplitterError, match="unknown granularity 'word'"):
        later(library, models, splitter="auto:granularity=word").collection_or_new("newer")
    assert library.catalog.collections.find("newer") is None


@pytest.mark.parametrize("wrong", ["semantic:granularity=word", "semantic:size=1", "os.path", "__main__.X", "auto:"])
def test_a_wrong_splitter_changes_nothing(library: Library, docs: Path, ingest: Run, wrong: str) -> None:
    (docs / "a.txt").write_text("Words.")
    ingest(splitter=PARAGRAPHS)
    (docs / "b.txt").write_text("Words.")
    with pytest.raises(SplitterError):
        ingest(splitter=wrong)
    assert splitter_of(library) == PARAGRAPHS
    assert len(library.catalog.documents.all(library.catalog.collections.get("default"))) == 1


def test_a_module_that_only_the_catalog_names_is_not_imported(
    library: Library, models: Models, docs: Path, ingest: Run
) -> None:
    """Whoever can write to the catalog could have any module of this machine run."""
    (docs / "a.txt").write_text("Words.")
    ingest(splitter=STRANGE)
    (docs / "b.txt").write_text("Words.")
    unnamed = later(library, models)
    run = Ingest(unnamed, models, unnamed.collection(), IngestOptions(kv="on-use", workers=1))
    with pytest.raises(SplitterError, match=r"is cut by tests.splitter.parsers.Strange, whose code an import runs"):
        run.run([docs])
    for named, asked in ((later(library, models, splitter="tests.splitter.parsers.Strange"), None),
                         (later(library, models), STRANGE)):  # fmt: skip
        (docs / "c.txt").write_text(f"Words of {asked}.")
        options = IngestOptions(kv="on-use", workers=1, splitter=asked)
        assert Ingest(named, models, named.collection(), options).run([docs]).failed == ()


@pytest.mark.parametrize("way", ["upper", "exit", "exception"])
def test_a_splitter_that_cuts_nothing_is_not_kept(
    library: Library, models: Models, docs: Path, ingest: Run, way: str
) -> None:
    """A later ingest, which does not name it, is to go on as before."""
    (docs / "a.txt").write_text("Words.")
    ingest(splitter=PARAGRAPHS)
    (docs / "b.txt").write_text("words of another file")
    wrong = f"tests.splitter.parsers.Strange:way={way}"
    result = ingest(splitter=wrong)
    assert (result.added, [Path(one.source).name for one in result.failed]) == (0, ["b.txt"])
    told = f"nothing was cut by {wrong!r}, so new files are cut by {PARAGRAPHS!r} as before"
    assert (told in result.notes, splitter_of(library)) == (True, PARAGRAPHS)
    other = later(library, models)
    again = Ingest(other, models, other.collection(), IngestOptions(kv="on-use", workers=1)).run([docs])
    assert (again.added, again.failed, splitter_of(library)) == (1, (), PARAGRAPHS)


def test_a_collection_that_nothing_was_cut_for_is_not_bound(library: Library, models: Models, docs: Path) -> None:
    (docs / "a.txt").write_text("lower case")
    options = IngestOptions(kv="on-use", workers=1)
    wrong = later(library, models, splitter="tests.splitter.parsers.Strange:way=upper")
    assert len(Ingest(wrong, models, wrong.collection_or_new("default"), options).run([docs]).failed) == 1
    right = later(library, models, splitter=PARAGRAPHS)
    result = Ingest(right, models, right.collection_or_new("default"), options).run([docs])
    assert (result.added, result.failed, splitter_of(library)) == (1, (), PARAGRAPHS)
    assert not any("from now on" in note for note in result.notes)
    (docs / "b.txt").write_text("more")
    other = later(library, models, splitter="fixed")  # what has cut a document stays
    Ingest(other, models, other.collection_or_new("default"), options).run([docs])
    assert splitter_of(library) == PARAGRAPHS


def test_a_module_that_ends_the_program_is_an_error(
    library: Library, docs: Path, ingest: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ending.py").write_text("import sys; sys.exit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    (docs / "a.txt").write_text("Words.")
    with pytest.raises(SplitterError, match=r"cannot import the splitter ending.Parser: SystemExit: 0"):
        ingest(splitter="ending.Parser")
    assert splitter_of(library) == "auto"


def test_what_is_shown_is_how_a_document_was_cut(library: Library, docs: Path, ingest: Run) -> None:
    """Of documents that another splitter has cut before, nobody knows."""
    for name, splitter in (("a", "fixed"), ("b", "auto"), ("c", None)):
        (docs / f"{name}.md").write_text(f"# Head\n\nWords of {name}.\n")
        ingest(splitter=splitter)
    ways = [show_document(library, str(docs / f"{name}.md")).way for name in "abc"]
    assert ways == ["", "markdown (below its headings)", "markdown (below its headings)"]
    (docs / "d.md").write_text("# Head\n\nWords of d.\n")
    ingest(splitter="fixed")
    ingest(splitter="auto")  # cuts nothing, so it is not kept
    assert {show_document(library, str(docs / f"{name}.md")).way for name in "abcd"} == {""}


def test_a_parser_that_a_text_breaks_costs_its_file(library: Library, docs: Path, ingest: Run) -> None:
    (docs / "a.txt").write_text("lower case")
    (docs / "b.txt").write_text("UPPER CASE")
    result = ingest(splitter="tests.splitter.parsers.Strange:way=upper")
    assert (result.added, [Path(one.source).name for one in result.failed]) == (1, ["a.txt"])
    assert "Strange changes this text" in result.failed[0].reason


def test_auto_tells_what_it_chose(docs: Path, ingest: Run) -> None:
    result = ingest(write_mixed_folder(docs))
    assert sum(result.ways.values()) == result.added
    assert {"markdown (below its headings)", "items (even windows of rows)"} <= set(result.ways)
    assert ingest().ways == {}
    assert result.as_json()["ways"] == result.ways


def test_every_kind_has_its_way() -> None:
    assert {way("auto", kind, False) for kind in KINDS} == {
        "prose (where meaning turns)", "markdown (where meaning turns)", "html (where meaning turns)",
        "code (blocks between blank lines)", "chat (turns)", "table (even windows of rows)",
        "items (even windows of rows)",
    }  # fmt: skip
    assert way("auto:granularity=passage", "html", True) == "html (below its headings)"
    assert {way(name, kind, True) for name in SPLITTERS if name != "auto" for kind in KINDS} == {""}


def test_a_document_that_is_not_written_leaves_the_splitter_as_it_was(
    ingest: Run, library: Library, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (docs / "a.txt").write_text("One sentence is here. Another one is there.")
    ingest(splitter="fixed")
    (docs / "b.txt").write_text("A third sentence follows. And so does a fourth.")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr("app.library.catalog.documents.add", full)
        with pytest.raises(Exception, match="full"):
            ingest(splitter="semantic")
    assert library.catalog.collections.get("default").splitter == "fixed"
    ingest(splitter="semantic")
    assert library.catalog.collections.get("default").splitter == "semantic"


def test_a_rehearsal_cuts_as_the_ingest_would_where_nothing_was_ever_cut(
    ingest: Run, library: Library, docs: Path
) -> None:
    (docs / "a.txt").write_text("One sentence is here.")
    like = library.collection_or_new("another")
    library.catalog.collections.create(
        "default",
        embedder=like.embedder,
        embedder_fingerprint=like.embedder_fingerprint,
        dimension=like.dimension,
        splitter="llama_index.core.node_parser.NoSuchParser",
    )
    assert ingest(dry_run=True).added == 1
    assert ingest().added == 1
