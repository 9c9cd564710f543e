"""What libraries raise is told as damage, or as want of memory, for which whoever reads it may wait."""

from __future__ import annotations

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
