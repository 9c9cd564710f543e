"""Older encodings: what is declared, what is damaged, and what the letters tell."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import parse
from app.loaders.alphabets import CANDIDATES, Alphabet

LINES = [
    ("cp1252", "Où êtes-vous allés, mes chers élèves ? La forêt brûle."),
    ("cp1252", "Größe und Gewicht müssen auf der Straße übereinstimmen."),
    ("cp1252", "¿Dónde está el niño? ¡Mañana será otro día!"),
    ("cp1252", "As opiniões e as decisões são importantes."),
    ("cp1252", "Perché non può venire? È già lunedì."),
    ("cp1252", "Rødgrød med fløde på en smuk ø."),
    ("cp1252", "Räksmörgås är gott på sommaren."),
    ("cp1252", "Það er góður dagur í Reykjavík."),
    ("cp1252", "De coördinatie van België is één probleem."),
    ("cp1252", "Tämä on pitkä yö järvellä."),
    ("cp1252", "San José, São Paulo, Düsseldorf and Århus"),
    ("cp1252", "It costs £5 and ½ of it is 3 m² ± 1 at 20°C, or 10³ µm."),
    ("cp1252", "naïve"),
    ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
    ("iso8859-2", "Žádný učený z nebe nespadl."),
    ("cp1250", "Wczytuje plik i zwraca liczbę wierszy."),
    ("iso8859-2", "Książki są ciekawe, a źródła różne."),
    ("cp1250", "Az időjárás"),
    ("cp1250", "frumoasă astăzi şi"),
    ("cp1250", "Čovjek živi u kući pokraj mora."),
    ("cp1254", "tasarısını görüştü"),
    ("cp1254", "İstanbul’da yağmur yağıyor."),
    ("cp1257", "Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis."),
    ("cp1251", "Вернуть сумму"),
    ("koi8-r", "Вернуть сумму"),
    ("cp866", "Вернуть сумму"),
    ("cp1251", "Всі люди народжуються вільними."),
    ("cp1253", "Καλημέρα κόσμε"),
    ("cp1255", "שלום עולם"),
    ("cp1256", "مرحبا بالعالم"),
    ("cp874", "สวัสดีชาวโลก"),
    ("cp932", "設定ファイルを読み込む"),
    ("euc_jp", "設定ファイルを読み込む"),
    ("gbk", "读取配置文件"),
    ("big5", "今天天氣很好"),
    ("cp949", "설정 파일을 읽는다"),
]
# What is not ASCII in these is signs and words of one letter: it tells no language, however often it comes.
LONE = [
    "Keep the temperature between 2 °C and 8 °C at all times. ",
    "10 °C",
    "20°C–25°C",
    "time;temp °C\n12;3\n",
    "Tickets cost £20 for adults and £10 for children; a family ticket is £50. ",
    "price 5 £, 10 £, 20 £ ",
    "item,price\npen,£2.50\nbook,£10.00\n",
    "Il pense a sa famille, il va à la mer, puis à la montagne, et il reste à la maison. ",
    "È vero. È falso. È cosi. ",
    "à la carte ",
    "'é': 'e', 'è': 'e', 'à': 'a' ",
    "The capacitor is rated at 100µF; use 10µF for C2. ",
    "100µF",
    "see Section § 5 and § 12 of the Act ",
    "Home · News · Sport · Weather\n",
    "¡Hola! ",
    "¿que tal? ",
    "1ª 2º ",
    "a·b ",
    "The café serves it at 8 °C for £5. ",
]
CODE = """#include <stdio.h>
/* {0} */
int main(void) {{
    int value = readConfig(path);  // see below
    for (int i = 0; i < value; i++) process_item(items[i], options);
    puts("{0}");
}}
"""


def read(name: str, data: bytes) -> str:
    found = parse(Path(name), data)
    found.check_integrity()
    return found.text


@pytest.mark.parametrize("frame", ["{0}", 'print("{0}")\n', CODE], ids=["line", "call", "code"])
@pytest.mark.parametrize(("encoding", "line"), LINES)
def test_letters_tell_the_encoding(encoding: str, line: str, frame: str) -> None:
    text = frame.format(line)
    assert read("a.c", text.encode(encoding)) == text


@pytest.mark.parametrize("times", [1, 50])
@pytest.mark.parametrize("line", LONE)
def test_lone_signs_and_letters_are_western(line: str, times: int) -> None:
    assert read("a.txt", (line * times).encode("cp1252")) == line * times


@pytest.mark.parametrize(
    ("encoding", "line"),
    [
        ("cp1250", "Wiem, że to źle i że będzie gorzej."),
        ("cp1250", "MIAŁ 20 LAT, BYŁ ŻONATY"),
        ("cp1251", "Он и я, а не она и ты"),
        ("cp1251", "а и б"),
        ("cp1251", "Мороз 10 °C, § 5, дом № 2"),
        ("gbk", "温度保持在 10 度到 20 度之间"),
        ("big5", "a新 b想 這是測試文件"),
    ],
)
@pytest.mark.parametrize("times", [1, 50])
def test_signs_between_other_words_hide_no_language(encoding: str, line: str, times: int) -> None:
    text = f"{line}\n" * times
    assert read("a.txt", text.encode(encoding)) == text


def test_a_guess_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    read("a.txt", "Az időjárás".encode("cp1250"))
    assert [(one.levelno, "a.txt" in one.message, "cp1250" in one.message) for one in caplog.records] == [
        (logging.WARNING, True, True)
    ]


def test_one_damaged_byte_hides_no_encoding() -> None:
    text = "今天天气很好，孩子们在学校前面玩耍。" * 20
    assert read("a.txt", text.encode("gbk")[:-1]) == text[:-1] + "\ufffd"


@pytest.mark.parametrize("candidate", CANDIDATES, ids=lambda one: one.encoding)
def test_alphabets_hold_each_letter_once_and_most_can_be_written(candidate: Alphabet) -> None:
    for language in candidate.languages:
        assert len(set(language)) == len(language)
        assert len(language.encode(candidate.encoding, "ignore").decode(candidate.encoding)) * 4 > len(language) * 3


@pytest.mark.parametrize(
    ("declared", "encoding", "word"),
    [
        ("iso-8859-1", "cp1252", "“naïve”"),
        ("us-ascii", "cp1252", "“naïve”"),
        ("ISO-8859-9", "cp1254", "“ışık”"),
        ("gb2312", "gbk", "朱镕基"),
        ("x-gbk", "gb18030", "朱镕基"),
        ("shift_jis", "cp932", "①東京"),
        ("x-sjis", "cp932", "①東京"),
        ("euc-kr", "cp949", "똠방각하"),
        ("windows-1250", "cp1250", "ő"),
        ("iso-2022-jp", "iso-2022-jp", "東京"),
    ],
)
@pytest.mark.parametrize("name", ["a.html", "a.xml"])
def test_declarations_mean_what_browsers_take_them_for(
    name: str, declared: str, encoding: str, word: str, caplog: pytest.LogCaptureFixture
) -> None:
    head = f'<?xml version="1.0" encoding="{declared}"?>' if name == "a.xml" else f"<meta charset={declared}>"
    assert word in read(name, f"{head}<p>An English page with {word} in it</p>".encode(encoding))
    assert not caplog.records


@pytest.mark.parametrize("cut", [0, 1])
def test_valid_utf8_is_utf8_whatever_it_declares(cut: int, caplog: pytest.LogCaptureFixture) -> None:
    data = "<meta charset=iso-8859-1><p>café größer ü".encode()
    assert read("a.html", data[: len(data) - cut]) == ("café größer \ufffd" if cut else "café größer ü")
    assert not caplog.records


def test_utf8_that_ends_within_a_character_is_utf8() -> None:
    text = "plain words " * 300 + "and one café here. "
    assert read("a.txt", text.encode() + "€".encode()[:2]) == text + "\ufffd"
    assert read("a.txt", b"caf\xe9") == "café"


def test_utf8_with_many_wrong_bytes_stays_utf8() -> None:
    assert read("a.txt", "größer ".encode() * 5 + b"\xff \xff end") == "größer " * 5 + "\ufffd \ufffd end"


STATEMENT = """日付,金額,摘要
2024/01/05,1200,振込 ﾔﾏﾀﾞ ﾀﾛｳ
2024/01/06,300,ﾃﾞﾝｷﾘﾖｳｷﾝ 東京電力
2024/01/07,500,ｽｲﾄﾞｳ ﾘﾖｳｷﾝ
"""


@pytest.mark.parametrize(
    "text",
    [
        STATEMENT,
        STATEMENT * 20,
        "氏名,フリガナ\n山田太郎,ﾔﾏﾀﾞ ﾀﾛｳ\n鈴木花子,ｽｽﾞｷ ﾊﾅｺ\n",
        "ｶﾌﾞｼｷｶﾞｲｼﾔ\nﾐﾂﾋﾞｼﾕｰｴﾌｼﾞｴｲｷﾞﾝｺｳ,ｼﾝｼﾞﾕｸｼﾃﾝ\n",
    ],
)
@pytest.mark.parametrize("encoding", ["cp932", "euc_jp"])
def test_half_width_katakana_are_japanese(text: str, encoding: str) -> None:
    assert read("a.txt", text.encode(encoding)) == text


@pytest.mark.parametrize(
    ("encoding", "line"), [("cp1251", "ВЕРНУТЬ СУММУ"), ("cp1251", "МЭР ВЮРЦБУРГА ЯН"), ("cp874", "สวัสดีชาวโลก")]
)
def test_letters_of_others_are_no_half_width_katakana(encoding: str, line: str) -> None:
    assert read("a.txt", line.encode(encoding)) == line


def test_what_makes_pairs_throughout_is_text(caplog: pytest.LogCaptureFixture) -> None:
    """Its characters are so rare that another encoding costs less, in which a third of them is damaged."""
    text = "憂鬱 魑魅魍魎\n" * 30
    assert read("a.txt", text.encode("gb18030")) == text
    assert "read as gb18030, which its letters fit best (0 places" in caplog.text


def test_japanese_mails_are_read() -> None:
    text = "件名: 会議のお知らせ\nDear all,\n明日の会議は10時からです。 ﾔﾏﾀﾞ\n"
    assert read("a.txt", text.encode("iso2022_jp_ext")) == text


def test_a_log_of_a_terminal_is_no_japanese_mail() -> None:
    text = "\x1b[1mbold\x1b(B\x1b[m costs $B and \x1b$B is an escape\n"
    assert read("a.txt", text.encode()) == text


def test_noise_is_binary() -> None:
    with pytest.raises(LoadError, match="looks binary"):
        read("a.txt", bytes(range(1, 256)) * 40)
