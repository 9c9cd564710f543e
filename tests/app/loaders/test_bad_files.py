"""Every bad file is one LoadError that says what is wrong and what to do."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import LoadError
from app.loaders import load, parse
from app.loaders.base import ParseLimits
from ragcache.errors import ConfigError
from tests.app.loaders.files import (
    parts_of,
    write_docx,
    write_empty_pdf,
    write_epub,
    write_mixed_folder,
    write_pdf,
    write_pptx,
    write_scan,
    write_xlsx,
    write_zip,
)

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
PAGE = b"<!DOCTYPE html><html><body>Sign in</body></html>"


def refused(path: Path, *told: str, limits: ParseLimits | None = None) -> str:
    with pytest.raises(LoadError) as caught:
        load(path, limits)
    for part in told:
        assert part in caught.value.reason
    assert caught.value.path == path
    return str(caught.value)


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def cut(path: Path) -> Path:
    return written(path, path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.txt", b"", "is empty (0 bytes)"),
        ("a.pdf", b"", "is empty (0 bytes)"),
        ("a.txt", b" \n\t\n", "holds no text"),
        ("a.html", b"<p> </p><script>x()</script>", "holds no text"),
        ("a.json", b"[]", "holds no text"),
        ("a.txt", PNG, "is a PNG image, not text as its name says: convert it"),
        ("a.md", b"\x7fELF" + bytes(100), "is a program"),
        ("a.txt", b"GIF89a\x2c\x01\xc8\0\xf7\0\0", "is a GIF image"),
        ("a.txt", b"BZh91AY&SY\x8e", "is a bzip2 archive"),
        ("a.txt", b"OggS\0\x02", "is an Ogg recording"),
        ("a.txt", b"ID3\x04\0\0", "is an MP3 recording"),
        ("a.txt", b"fLaC\0\0\0\x22", "is a FLAC recording"),
        ("a.txt", b"RIFF\x24\x08\0\0WAVEfmt ", "is a WAV, AVI or WebP file"),
        ("a.txt", bytes(range(256)) * 8, "looks binary"),
        ("a.py", bytes(range(1, 256)) * 8, "looks binary"),
        ("a.csv", b"a,b\n1,\x00\n", "looks binary"),
        ("a.txt", b"%PDF-1.7 ...", "is a PDF document, not text as its name says: rename it to end in .pdf"),
        ("a.pdf", PAGE, "is an HTML page, not a PDF document as its name says: rename it to end in .html"),
        ("a.docx", PAGE, "is an HTML page, not a Word document"),
        ("a.pdf", b"just words", "is damaged"),
        ("a.docx", OLE, "save it without a password as .docx"),
        ("a.docx", b"just words", "is damaged or cut short"),
        ("a.json", b'{"a": 1,\n "b": }', "is not valid JSON at line 2, column 7"),
        ("a.jsonl", b'{"a": 1}\n{"b": \n', "is not valid JSON at line 2, column 6"),
        ("a.json", b"[" * 100_000, "nests its values too deep"),
        ("a.json", b'{"a":' * 100_000, "nests its values too deep"),
        ("a.txt", b"\xff\xfea\x00b", "starts with the mark of UTF-16-LE but byte 4"),
        ("a.xyz", b"words", "has the suffix '.xyz', which no loader reads: convert or rename it to one of .pdf"),
        ("words", b"words", "has no suffix"),
    ],
)
def test_bytes_that_are_no_document(name: str, data: bytes, told: str, tmp_path: Path) -> None:
    refused(written(tmp_path / name, data), told)


def test_pdfs_that_give_no_text(tmp_path: Path) -> None:
    refused(write_pdf(tmp_path / "locked.pdf", [["Secret."]], password="pw"), "is encrypted", "without its password")
    refused(write_scan(tmp_path / "scan.pdf"), "has no text, only images: run OCR first")
    refused(write_empty_pdf(tmp_path / "none.pdf"), "has no pages")
    refused(cut(write_pdf(tmp_path / "cut.pdf", [["words"]])), "is damaged or cut short")


def test_archives_that_are_something_else(tmp_path: Path) -> None:
    word = write_docx(tmp_path / "a.docx", [("Normal", "x")])
    refused(word.rename(tmp_path / "a.pptx"), "is a Word document, not a PowerPoint", "rename it to end in .docx")
    refused(write_zip(tmp_path / "b.xlsx", {"readme.txt": "x"}), "is a ZIP archive, not an Excel workbook")
    refused(write_zip(tmp_path / "c.txt", {"readme.txt": "x"}), "is a ZIP archive, not text")


def test_a_chapter_that_cannot_be_read_costs_no_book(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": "<p>one</p>", "b.xhtml": "<p>two</p>"})
    parts = parts_of(path)
    broken = write_zip(tmp_path / "b.epub", parts | {"OEBPS/a.xhtml": bytes(range(256)) * 8})
    assert load(broken).text.strip() == "two"
    assert "the chapter 'OEBPS/a.xhtml' is left out: it looks binary" in caplog.text
    package = str(parts["OEBPS/book.opf"], "utf-8")  # type: ignore[arg-type]
    images = (
        '<item id="c0" href="a.png" media-type="image/png" fallback="loop"/>'
        '<item id="loop" href="b.png" media-type="image/png" fallback="{}"/><item id="text" href="a.xhtml"/>'
    )
    for fallback, text in {"c0": "two", "text": "one\n\ntwo"}.items():
        items = package.replace('<item id="c0" href="a.xhtml" media-type="application/xhtml+xml"/>', images)
        named = {"OEBPS/book.opf": items.format(fallback), "OEBPS/a.png": PNG, "OEBPS/b.png": PNG}
        assert load(write_zip(tmp_path / "c.epub", parts | named)).text == text


def test_chapters_are_found_however_they_are_spelt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Some file systems know no case, and what works there is packed; of two that differ in case only none is meant."""
    path = write_epub(tmp_path / "a.epub", {"One.xhtml": "<p>one</p>", "two.xhtml": "<p>two</p>"})
    parts = parts_of(path)
    first = parts.pop("OEBPS/One.xhtml")
    assert load(write_zip(path, parts | {"OEBPS/one.XHTML": first})).text == "one\n\ntwo"
    assert not caplog.records
    for others in ({}, {"OEBPS/one.XHTML": first, "oebps/one.xhtml": first}):
        caplog.clear()
        assert load(write_zip(path, parts | others)).text == "two"
        assert [record.getMessage() for record in caplog.records] == [
            f"{path}: 1 chapters are not in the book: 'OEBPS/One.xhtml'"
        ]


def test_many_missing_chapters_are_one_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    chapters = {f"{number}{'x' * 200}.xhtml": "<p>words</p>" for number in range(100)}
    path = write_epub(tmp_path / "a.epub", chapters | {"last.xhtml": "<p>last</p>"})
    rest = {name: data for name, data in parts_of(path).items() if "xxx" not in name}
    assert load(write_zip(path, rest)).text == "last"
    [record] = caplog.records
    assert "100 chapters are not in the book: 'OEBPS/0xxx" in record.getMessage()
    assert len(record.getMessage()) < 1_500


def test_archives_cut_short(tmp_path: Path) -> None:
    for path in (
        write_docx(tmp_path / "a.docx", [("Normal", "x")]),
        write_pptx(tmp_path / "a.pptx", [("x", ["y"])]),
        write_xlsx(tmp_path / "a.xlsx", {"S": [[1]]}),
        write_epub(tmp_path / "a.epub", {"a.xhtml": "x"}),
    ):
        refused(cut(path), "is damaged or cut short", "get the file again")


def test_bombs_are_not_expanded(tmp_path: Path) -> None:
    limits = ParseLimits(max_expanded_bytes=3 << 20, max_xml_bytes=1 << 20)
    markup = write_docx(tmp_path / "a.docx", [("Normal", "x" * 2_000_000)])
    assert markup.stat().st_size < 10_000
    refused(markup, "expands to 1.9 MiB of markup, more than the limit of 1.0 MiB", limits=limits)
    image = write_docx(tmp_path / "b.docx", [("Normal", "x")])
    with zipfile.ZipFile(image, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("word/media/a.png", bytes(5_000_000))
    refused(image, "expands to 4.8 MiB in all", limits=limits)
    assert load(image).text == "x"
    # The rows of a workbook are streamed, so only the limit of all of it holds for them.
    rows = write_xlsx(tmp_path / "c.xlsx", {"S": [["x" * 30_000]] * 50})
    assert load(rows, limits).kind == "items"


def test_an_archive_that_lies_about_its_sizes_is_damaged(tmp_path: Path) -> None:
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": "<p>" + "word " * 10_000 + "</p>"})
    with zipfile.ZipFile(path) as archive:
        size = archive.getinfo("OEBPS/a.xhtml").file_size
    lie = path.read_bytes().replace(size.to_bytes(4, "little"), (100).to_bytes(4, "little"))
    refused(written(path, lie), "is damaged")


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    """Neither ten to the ninth laughs, nor a file of this machine."""
    secret = written(tmp_path / "secret", b"secret words")
    laughs = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    bomb = f'<!DOCTYPE x [<!ENTITY a0 "ha">{laughs}]>'
    outside = f'<!DOCTYPE x [<!ENTITY f SYSTEM "file://{secret}">]>'
    path = write_epub(tmp_path / "a.epub", {"a.xhtml": ""})
    with zipfile.ZipFile(path) as archive:
        parts: dict[str, str | bytes] = {name: archive.read(name) for name in archive.namelist()}
        package = archive.read("OEBPS/book.opf").decode()
    parts["OEBPS/a.xhtml"] = f"{bomb}<html><body>words &f; &a9;</body></html>"
    parsed = load(write_zip(path, {**parts, "OEBPS/book.opf": outside + package.replace("A book", "Title &f;")}))
    assert "secret" not in parsed.text + parsed.title
    assert len(parsed.text) < 2_000
    laughing = {**parts, "OEBPS/book.opf": bomb + package.replace("A book", "&a9;")}
    refused(write_zip(path, laughing), "is damaged", "entity amplification")


def test_protected_books_and_empty_workbooks(tmp_path: Path) -> None:
    refused(write_epub(tmp_path / "a.epub", {"a.xhtml": "x"}, encryption="OEBPS/a.xhtml"), "is protected", "DRM")
    assert load(write_epub(tmp_path / "b.epub", {"a.xhtml": "x"}, encryption="OEBPS/font.otf")).text == "x"
    refused(write_xlsx(tmp_path / "a.xlsx", {"S": [["=1/0"]]}), "holds no values", "open it in a spreadsheet program")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    refused(tmp_path / "gone.txt", "does not exist")
    (tmp_path / "folder.txt").mkdir()
    refused(tmp_path / "folder.txt", "is a folder, not a file")
    refused(tmp_path, "is a folder, not a file")
    loop, dead, pipe = (tmp_path / name for name in ("loop.txt", "dead.txt", "pipe.txt"))
    loop.symlink_to(loop)
    refused(loop, "is a loop of symbolic links")
    dead.symlink_to(tmp_path / "nothing")
    refused(dead, "is a symbolic link to a file that does not exist")
    os.mkfifo(pipe)  # opening it must not wait for a writer
    refused(pipe, "is a pipe, socket or device")
    refused(tmp_path / ("n" * 300 + ".txt"), "cannot be read (File name too long)")


def test_a_file_above_the_limit(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", b"word " * 400_000)
    refused(path, "has 1.9 MiB, more than the limit of 1.0 MiB", limits=ParseLimits(max_bytes=1 << 20))
    assert len(load(path, ParseLimits(max_bytes=2_000_000)).text) == 2_000_000
    with pytest.raises(ConfigError, match="max_bytes=0"):
        ParseLimits(max_bytes=0)


@pytest.mark.parametrize(
    "name", ["line\nbreak.pdf", "naïve 名前 😀.pdf", os.fsdecode(b"caf\xe9.pdf"), "\x1b[31mred.pdf"]
)
def test_any_name_is_loaded_and_told_on_one_line(name: str, tmp_path: Path) -> None:
    path = write_pdf(tmp_path / name, [["words"]])
    parsed = load(path)
    parsed.title.encode("utf-8")
    assert parsed.title.isprintable()
    told = refused(written(path, PNG), "is a PNG image")
    assert told.isprintable()
    assert told.encode("utf-8")


def test_an_error_survives_the_way_between_processes() -> None:
    error = pickle.loads(pickle.dumps(LoadError(Path("a\n.txt"), "is empty")))
    assert (error.path, error.reason, str(error)) == (Path("a\n.txt"), "is empty", "a\\n.txt is empty")


def test_what_cannot_be_stored_is_replaced_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(["a\0b\ud800c", "next"]))
    parsed = load(path)
    parsed.check_integrity()
    assert parsed.text == "a�b�c\n\nnext"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, bytes]]:
    return [(path, path.read_bytes()) for path in sorted(write_mixed_folder(tmp_path_factory.mktemp("m")).iterdir())]


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damage_anywhere_gives_a_document_or_a_load_error(sound: list[tuple[Path, bytes]], data: st.DataObject) -> None:
    path, whole = data.draw(st.sampled_from(sound))
    at = data.draw(st.integers(0, len(whole) - 1))
    patch = data.draw(st.binary(max_size=8))
    tail = data.draw(st.sampled_from([whole[at + len(patch) :], b"", whole[at:]]))
    try:
        parse(path, whole[:at] + patch + tail).check_integrity()
    except LoadError as error:
        assert error.reason
