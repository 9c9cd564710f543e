"""What libraries raise is told as damage, or as want of memory, for which whoever reads it may wait."""

from __future__ import annotations

import struct
from pathlib import Path
from xml.etree.ElementTree import ParseError
from xml.parsers.expat import ExpatError

import pytest
from lxml.etree import XMLSyntaxError

from app.errors import LoadError
from app.loaders import load
from app.loaders.base import ParseLimits, SourceFile
from app.loaders.soundness import reading
from tests.app.loaders.files import parts_of, write_xlsx, write_zip


@pytest.mark.parametrize("sheet", ["garbage", "<a", "<a><b></a>", ""])
def test_a_sheet_that_is_no_xml_is_damage(sheet: str, tmp_path: Path) -> None:
    path = write_xlsx(tmp_path / "a.xlsx", {"S": [[1]]})
    write_zip(path, parts_of(path) | {"xl/worksheets/sheet1.xml": sheet})
    with pytest.raises(LoadError, match="is damaged or cut short and cannot be read as an Excel workbook"):
        load(path)


@pytest.mark.parametrize("suffix", [".epub", ".odt", ".docx", ".txt"])
@pytest.mark.parametrize("place", [2**64 - 5, 2**63 + 5, 2**40])
def test_a_part_that_is_at_no_place_is_damage(place: int, suffix: str, tmp_path: Path) -> None:
    """Of the first part, whose place takes 64 bits."""
    path = write_zip(tmp_path / "a.zip", {"mimetype": "x", "META-INF/container.xml": "<x/>"})
    data = bytearray(path.read_bytes())
    entry, added = data.find(b"PK\1\2"), struct.pack("<HHQ", 1, 8, place)
    data[entry + 30 : entry + 32] = struct.pack("<H", len(added))
    data[entry + 42 : entry + 46] = b"\xff" * 4
    behind = entry + 46 + len("mimetype")
    data[behind:behind] = added
    end = data.rfind(b"PK\5\6") + 12
    (size,) = struct.unpack_from("<I", data, end)
    data[end : end + 4] = struct.pack("<I", size + len(added))
    path = path.with_suffix(suffix)
    path.write_bytes(data)
    with pytest.raises(LoadError, match=r"is damaged or cut short|is an EPUB book, not"):
        load(path)


@pytest.mark.parametrize(
    ("kind", "code", "lacking"),
    [
        (ExpatError, 1, True),
        (ExpatError, 2, False),
        (ParseError, 1, True),
        (ParseError, 2, False),
        (XMLSyntaxError, 0, True),
        (XMLSyntaxError, 1, False),
        (XMLSyntaxError, 2, True),
        (XMLSyntaxError, 4, False),
    ],
)
def test_each_parser_of_xml_has_its_codes_of_want_of_memory(kind: type[Exception], code: int, lacking: bool) -> None:
    error = XMLSyntaxError("odd", code, 0, 0) if kind is XMLSyntaxError else kind("odd")
    error.code = code
    with (
        pytest.raises(MemoryError if lacking else LoadError),
        reading(SourceFile(Path("a.xlsx"), b"", ParseLimits()), "an Excel workbook"),
    ):
        raise error
