"""UTF-16 without a mark is text where that is beyond doubt, and binary else."""

from __future__ import annotations

import struct
from math import sin
from pathlib import Path
from random import Random

import pytest

from app.errors import LoadError
from app.loaders import parse

TEXTS = {
    "English": "Name,Value\r\nThe lighthouse was lit in 1884, by two keepers.\r\n",
    "code": "int main() {\n\treturn 0;\n}\n",
    "short": "key=1",
    "French": "Où êtes-vous allés, mes chers élèves ? La forêt brûle.\n",
    "Czech": "Příliš žluťoučký kůň úpěl ďábelské ódy.\n",
    "Turkish": "İstanbul’da yağmur yağıyor.\n",
    "Russian": "Вернуть сумму, пожалуйста\n",
    "Ukrainian": "Всі люди народжуються вільними.\n",
    "Greek": "Καλημέρα κόσμε\n",
    "Hebrew": "שלום עולם\n",
    "Arabic": "مرحبا بالعالم\n",
    "Thai": "สวัสดีชาวโลก\n",
    "Japanese": "設定ファイルを読み込む、これは日本語の文章です。\n",
    "Chinese": "今天天气很好，孩子们在学校前面玩耍。\n",
    "Taiwanese": "今天天氣很好，孩子們在學校前面玩。\n",
    "Korean": "설정 파일을 읽는다\n",
    "JSON": '{"name": "München 😀", "of": ["a", "b"]}',
}


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_texts_are_read_in_either_order(text: str, encoding: str, caplog: pytest.LogCaptureFixture) -> None:
    parsed = parse(Path("a.txt"), text.encode(encoding))
    assert parsed.text == text
    assert f"a.txt tells no encoding: read as {encoding.upper()}" in caplog.text


def test_other_formats_are_read_so_too() -> None:
    assert parse(Path("a.csv"), "name,age\nAnn,3\n".encode("utf-16-le")).text == "name: Ann\nage: 3"
    assert parse(Path("a.html"), "<html><p>Fog came in.</p>".encode("utf-16-be")).text == "Fog came in."


BINARY = {
    "odd": "Some words of a text.".encode("utf-16-le") + b"\n",
    "within": "Some words\0 of a text.".encode("utf-16-le"),
    "utf-32": "Some words of a text.".encode("utf-32-le"),
    "halves": "Some words ".encode("utf-16-le") + b"\x00\xd8" + "of a text.".encode("utf-16-le"),
    "far halves": "Some words ".encode("utf-16-le") * 3_000 + b"\x00\xd8" + "of a text.".encode("utf-16-le"),
    "control": "\x01\x02Some words of a text.\x03".encode("utf-16-le"),
    "counters": struct.pack("<500H", *range(500)),
    "sound": struct.pack("<900h", *(round(900 * sin(at / 9)) for at in range(900))),
    "floats": struct.pack("<300d", *(number / 7 for number in range(300))),
    "noise": Random(2).randbytes(4_000),
    "tiny": b"a\0b\0",
    "rare": "꙰ꙮꚘꚠ\u0a05\u0a06\u0a07 ".encode("utf-16-le"),
}


@pytest.mark.parametrize("data", BINARY.values(), ids=BINARY)
def test_what_may_be_anything_is_binary(data: bytes) -> None:
    assert b"\0" in data
    with pytest.raises(LoadError, match="looks binary"):
        parse(Path("a.txt"), data)
