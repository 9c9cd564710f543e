"""Mails that are encoded within mails, odd headers and parameters, and bodies of other kinds."""

from __future__ import annotations

import base64
import quopri
from pathlib import Path

import pytest

from app.errors import LoadError
from app.loaders import parse
from app.loaders.mail_part import DEEPEST, MOST_PARTS

INNER = "From: x@y.example\nSubject: =?utf-8?q?Gr=C3=B6=C3=9Fe?=\nContent-Type: {}; charset=utf-8\n\n{}"
HEAD = "Subject: s\nMIME-Version: 1.0\nContent-Type: "


def text_of(data: str | bytes) -> str:
    parsed = parse(Path("a.eml"), data if isinstance(data, bytes) else data.encode())
    parsed.check_integrity()
    return parsed.text


def enclosed(mail: bytes, encoding: str) -> bytes:
    kind = f'message/rfc822; name="i.eml"\nContent-Transfer-Encoding: {encoding}'
    coded = base64.encodebytes(mail) if encoding.lower() == "base64" else quopri.encodestring(mail)
    return (
        f"{HEAD}multipart/mixed; boundary=b\n\n--b\n\nOuter.\n--b\nContent-Type: {kind}\n\n".encode()
        + coded
        + b"\n--b--\n"
    )


@pytest.mark.parametrize("encoding", ["base64", "quoted-printable", "BASE64"])
def test_encoded_mails_are_read(encoding: str) -> None:
    parts = "--=_\nContent-Type: text/plain; charset=utf-8\n\nSüß und = und so weiter.\n--=_--"
    inner = INNER.format('multipart/mixed; boundary="=_"', parts).encode()
    told = "# s\n\nOuter.\n\n## Größe\n\nFrom: x@y.example\n\nSüß und = und so weiter."
    assert text_of(enclosed(inner, encoding)) == told


def test_encoded_mails_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    mail = b"Subject: 0\n\nMail 0."
    for _ in range(12):
        mail = enclosed(mail, "base64")
    assert "Mail 0." not in text_of(mail) and text_of(mail).count("Outer.") == 9
    assert "1 mails are left out, which more than 8 others enclose" in caplog.text
    heads = "".join(f"Content-Type: multipart/mixed; boundary=b{at}\n\n--b{at}\n" for at in range(DEEPEST))
    with pytest.raises(LoadError, match="nests its content too deep to be read as an e-mail"):
        text_of(enclosed(f"Subject: s\n{heads}\nwords".encode(), "base64"))
    half = f"{HEAD}multipart/mixed; boundary=c\n\n" + "--c\n\nx\n" * (MOST_PARTS - 9)
    assert text_of(half)
    with pytest.raises(LoadError, match="has more than 10,000 parts"):
        text_of(enclosed(enclosed(half.encode(), "base64"), "base64").replace(b"Outer.", b"x\n" + b"--b\n\nx\n" * 9))


@pytest.mark.parametrize("charset", ["koi8-r", "windows-1251", "utf-8"])
def test_raw_headers_are_in_the_encoding_of_the_mail(charset: str) -> None:
    head = "From: Иван <a@b.example>\nSubject: Отчёт\nContent-Type: {}; charset={}\n\n"
    assert text_of((head.format("text/plain", charset) + "Текст").encode(charset)) == (
        "# Отчёт\n\nFrom: Иван <a@b.example>\n\nТекст"
    )
    part = f"--b\nContent-Type: text/plain; charset={charset}\n\nТекст\n--b--"
    assert text_of((head.format("multipart/mixed; boundary=b", "") + part).encode(charset)).startswith("# Отчёт\n")


@pytest.mark.parametrize(
    "odd",
    [
        "Content-Disposition: attachment; filename*0=a; filename*1*",
        "Content-Disposition: attachment; filename*=utf-8''",
        "Content-Type: application/pdf; name*0*; name*1*=%E2",
        "Content-Type: application/pdf; name*=a%00'' %00",
        "Content-Type: multipart/mixed; boundary*0*; boundary*1",
    ],
)
def test_odd_parameters_cost_themselves(odd: str) -> None:
    parts = f"--b\n\nWords.\n--b\n{odd}\nContent-Disposition: attachment\n\nx\n--b--"
    assert text_of(f"{HEAD}multipart/mixed; boundary=b\n\n{parts}") == "# s\n\nWords."


@pytest.mark.parametrize(("charset", "codec"), [("windows-874", "cp874"), ("cp-850", "cp850"), ("x%00", "utf-8")])
def test_names_of_code_pages(charset: str, codec: str, caplog: pytest.LogCaptureFixture) -> None:
    text = "สวัสดีครับ" if codec == "cp874" else "für größer"
    kind = f"text/plain; charset*=us-ascii''{charset}\nContent-Transfer-Encoding: base64\n\n"
    assert text_of(HEAD.encode() + kind.encode() + base64.encodebytes(text.encode(codec))) == f"# s\n\n{text}"
    assert not caplog.records, "nothing is guessed"


def test_lines_that_flow_are_joined() -> None:
    lines = "東京の \n港。\n\n>> quoted \n>> more\n> less \n>> again\n stuffed\nend \n-- \nAnn"
    told = "東京の港。\n\n>> quotedmore\n> less\n>> again\nstuffed\nend-- \nAnn"
    assert text_of(f"{HEAD}text/plain; charset=utf-8; format=flowed; DelSp=yes\n\n{lines}") == f"# s\n\n{told}"
    assert "の \n港" in text_of(f"{HEAD}text/plain; charset=utf-8; format=flowed\n\n{lines}")


@pytest.mark.parametrize(
    ("kind", "said", "text"),
    [
        ("text/markdown", "# Oil", "# Oil"),
        ("text/calendar", "BEGIN:VCALENDAR", "BEGIN:VCALENDAR"),
        ("application/xhtml+xml", "<h2>Oil</h2><p>of 1884", "## Oil\n\nof 1884"),
    ],
)
def test_bodies_of_other_kinds(kind: str, said: str, text: str, caplog: pytest.LogCaptureFixture) -> None:
    assert text_of(f"{HEAD}{kind}\n\n{said}") == f"# s\n\n{text}"
    part = f"--b\nContent-Type: {kind}\n\n{said}\n"
    for several in ("mixed", "alternative"):
        assert text_of(f"{HEAD}multipart/{several}; boundary=b\n\n{part}--b--") == f"# s\n\n{text}"
    assert not caplog.records
    beside = f"{HEAD}multipart/mixed; boundary=b\n\n{part}--b\n\nWords.\n--b--"
    assert text_of(beside) == ("# s\n\nWords." if kind.startswith("text/") else f"# s\n\n{text}\n\nWords.")
    assert ("1 attachment is left out" in caplog.text) == kind.startswith("text/")
