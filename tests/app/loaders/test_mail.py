"""E-mails: who wrote what to whom, by the part that says it best, whatever encloses it."""

from __future__ import annotations

from base64 import b64encode
from email.message import EmailMessage
from email.policy import SMTP
from pathlib import Path
from typing import Any

import pytest

from app.errors import LoadError
from app.loaders import parse
from app.loaders.base import Parsed, ParseLimits
from app.loaders.mail import LONGEST_TOLD, MOST_ENCLOSED
from app.loaders.mail_part import DEEPEST, MOST_PARTS, WORD_OF_LETTERS, _without_raw

PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
SMALL = ParseLimits(max_characters=100_000)


def read(data: bytes | EmailMessage, limits: ParseLimits | None = None) -> Parsed:
    parsed = parse(Path("a.eml"), data if isinstance(data, bytes) else data.as_bytes(policy=SMTP), limits)
    parsed.check_integrity()
    return parsed


def mail(text: str = "", subject: str = "Oil", **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"] = subject
    for name, value in headers.items():
        made[name.rstrip("_")] = value
    if text:
        made.set_content(text)
    return made


def test_headers_and_text() -> None:
    found = mail("Dear Bo,\n\nsend süß oil.\n", "Öl für März", From="Änne <a@example.org>", To="b@example.org, c@x.org")
    found["Date"] = "Mon, 30 Nov 2026 10:00:00 +0000"
    parsed = read(found)
    assert (parsed.kind, parsed.title, parsed.pages) == ("markdown", "Öl für März", ())
    assert parsed.text == (
        "# Öl für März\n\nFrom: Änne <a@example.org>\nTo: b@example.org, c@x.org\nDate: Mon, 30 Nov 2026 10:00:00 +0000"
        "\n\nDear Bo,\n\nsend süß oil."
    )


def test_a_mail_without_a_subject_is_called_as_its_file() -> None:
    parsed = read(b"\n\nFrom: a@example.org\n\nWords.\n")
    assert (parsed.text, parsed.title) == ("From: a@example.org\n\nWords.", "a")


@pytest.mark.parametrize(
    ("plain", "page", "text"),
    [
        ("The plain one.", "<p>The page.", "The plain one."),
        (" \n", "<h2>Prices</h2><table><tr><td>a<td>b<tr><td>1<td>2</table>", "## Prices\n\n| a | b |\n| --- | --- |"),
        ("", "<p>The page.", "The page."),
    ],
)
def test_plain_text_comes_before_a_page(plain: str, page: str, text: str) -> None:
    found = mail(plain)
    if plain:
        found.add_alternative(page, subtype="html")
    else:
        found.set_content(page, subtype="html")
    assert read(found).text.startswith(f"# Oil\n\n{text}")
    assert ("page" in read(found).text) == (text == "The page.")


def test_the_page_of_a_mail_with_images_is_read(caplog: pytest.LogCaptureFixture) -> None:
    found = mail(" ")
    found.add_alternative("<p>The page.</p>", subtype="html")
    (_, page) = found.get_payload()
    page.add_related(PNG, "image", "png", filename="logo.png")  # type: ignore[union-attr]
    assert read(found).text == "# Oil\n\nThe page."
    assert "a.eml: 1 attachment is left out: logo.png" in caplog.text


def test_attachments_are_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    found = mail("See below.")
    found.add_attachment("secret words", filename="notes.txt")
    found.add_attachment(PNG, "image", "png", filename="Übersicht\x1b[2J.png")
    for number in range(20):
        found.add_attachment(b"x", "application", "zip", filename=f"{number}.zip")
    assert read(found).text == "# Oil\n\nSee below."
    assert "22 attachments are left out: notes.txt, Übersicht\\x1b[2J.png, 0.zip" in caplog.text
    assert "9.zip" not in caplog.text


def test_texts_between_attachments_are_read_one_after_another() -> None:
    parts = "\n".join(f"--b\nContent-Type: text/plain\n\n{text}" for text in ("One.", "Two."))
    data = f"Subject: s\nContent-Type: multipart/mixed; boundary=b\n\npreamble\n{parts}\n--b--\nepilogue"
    assert read(data.encode()).text == "# s\n\nOne.\n\nTwo."


@pytest.mark.parametrize("charset", ["cp1252", "utf-8", "iso-2022-jp", "utf-16-le", "x-none", ""])
@pytest.mark.parametrize("kind", ["plain", "html"])
def test_encodings(charset: str, kind: str) -> None:
    text = "東京 harbour" if charset == "iso-2022-jp" else "café harbour, größer"
    head = f"Subject: s\nContent-Type: text/{kind}" + (f"; charset={charset}" if charset else "") + "\n\n"
    known = charset if charset not in ("x-none", "") else "utf-8"
    if charset == "utf-16-le":
        import base64

        body = base64.b64encode(text.encode(known))
        head = head.replace("\n\n", "\nContent-Transfer-Encoding: base64\n\n")
    else:
        body = text.encode(known)
    assert read(head.encode() + body).text == f"# s\n\n{text}"


def test_headers_that_are_written_as_they_are() -> None:
    assert read("Subject: größer\n\nx".encode()).title == "größer"
    assert read(b"Subject: gr\xf6\xdfer\n\nx").title == "gr\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}er"
    assert read(b"\xef\xbb\xbfSubject: =?utf-8?q?gr=C3=B6=C3=9Fer?=\n\nx").title == "größer"


def encoded(text: bytes, charset: str) -> str:
    return f"=?{charset}?B?{b64encode(text).decode()}?="


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (f"{encoded('漢字'.encode()[:4], 'utf-8')} {encoded('漢字'.encode()[4:], 'utf-8')}", "漢字"),
        (
            f"{encoded('漢字'.encode('cp932')[:3], 'shift_jis')} {encoded('字'.encode('cp932')[1:], 'Shift_JIS')}",
            "漢字",
        ),
        (f"{encoded('漢'.encode(), 'utf-8')}\n {encoded('字'.encode('cp932'), 'shift_jis')}", "漢字"),
        (f"{encoded('Ann’s'.encode('cp1252'), 'iso-8859-1')} B =?utf-8?q?=C3=A9_C?=", "Ann’s B é C"),
        (encoded("漢".encode("gb18030"), "gb2312"), "漢"),
        ("=?utf-8?Q?漢字_=E5=AD=97?=", "漢字 字"),
        ("=?utf-8?q?漢=E5=AD?= =?UTF-8?Q?=97é?=", "漢字é"),
        ("=?iso-8859-1?Q?café?= =?shift_jis?q?漢?=", "café漢"),
        ("=?iso-8859-1?Q?Ann’s_caf=E9?= =?gb2312?q?鎔?= =?shift_jis?q?①?=", "Ann’s café鎔①"),
    ],
)
def test_encoded_words_are_read_as_one(words: str, text: str) -> None:
    parsed = read(f"Subject: {words}\nFrom: {words} <a@b.example>\n\nx".encode())
    assert (parsed.title, parsed.text) == (text, f"# {text}\n\nFrom: {text} <a@b.example>\n\nx")


@pytest.mark.parametrize("odd", ["=?none?B?eA==?= =?utf-8?B?eA==?=", "=?utf-8?B?e?=", "=?utf-8?B?/w==?=", "=?a?q??=",
                                 "=?ascii?q?漢?=", "=?漢?q?漢?=", "=?utf-8?B?漢字?=", "=?utf-8*ja?q?漢?="])  # fmt: skip
def test_encoded_words_that_cannot_be_read_cost_themselves(odd: str) -> None:
    text = read(f"Subject: Oil {odd}\nFrom: {odd} <a@b.example>\n\nWords.".encode()).text
    assert "Words." in text and "\\u" not in text


@pytest.mark.parametrize("name", ["punycode", "idna", "unicode_escape", "none"])
def test_no_letters_are_encoded_in_what_is_no_encoding_of_texts(name: str) -> None:
    """Some take time by the square of them."""
    with pytest.raises(LookupError):
        WORD_OF_LETTERS.sub(_without_raw, f"=?{name}?q?漢?=")


def test_enclosed_mails_are_read_within_a_depth(caplog: pytest.LogCaptureFixture) -> None:
    whole = mail("Mail 0.", "Subject 0")
    for number in range(1, 12):
        outer = mail(f"Mail {number}.", f"Subject {number}", From="a@example.org")
        outer.add_attachment(whole)
        whole = outer
    text = read(whole).text
    assert text.startswith("# Subject 11\n\nFrom: a@example.org\n\nMail 11.\n\n## Subject 10\n\nFrom: a@example.org")
    assert "###### Subject 6" in text and f"###### Subject {11 - MOST_ENCLOSED}" in text
    assert "Subject 2" not in text
    assert "1 mails are left out, which more than 8 others enclose" in caplog.text


def test_a_text_that_cannot_be_read_costs_itself(caplog: pytest.LogCaptureFixture) -> None:
    found = mail("Words.")
    found.make_mixed()
    part: Any = EmailMessage()
    part.set_content(bytes(range(256)), "text", "plain", disposition="inline")
    found.attach(part)
    assert read(found).text == "# Oil\n\nWords."
    assert "a text of it is left out: it looks binary" in caplog.text


def test_a_mail_cut_short_keeps_what_is_there() -> None:
    found = mail("The first part.")
    found.add_attachment(PNG * 100, "image", "png", filename="a.png")
    data = found.as_bytes()
    assert "The first part." in read(data[: len(data) // 2]).text
    assert read(b"Subject: s\nContent-Type: multipart/mixed; boundary=none\n\nJust words.").text == "# s\n\nJust words."


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"Just words, of no mail at all.", "is no e-mail: no header of one stands at its start"),
        (b"Odd: 1\n\nwords", "is no e-mail"),
        (PNG, "is a PNG image, not text"),
        (b"Content-Type: image/png\nContent-Transfer-Encoding: base64\n\nAAAA", "holds no text"),
        (b"Message-ID: 1\n\n \n", "holds no text"),
    ],
)
def test_what_is_no_mail(data: bytes, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        read(data)


def nested(depth: int) -> bytes:
    heads = "".join(f"Content-Type: multipart/mixed; boundary=b{at}\n\n--b{at}\n" for at in range(depth))
    return f"Subject: s\n{heads}\nwords".encode()


def test_parts_within_each_other_and_beside_each_other_are_bounded() -> None:
    assert read(nested(DEEPEST)).text == "# s\n\nwords"
    with pytest.raises(LoadError, match="nests its content too deep to be read as an e-mail"):
        read(nested(DEEPEST + 1))
    with pytest.raises(LoadError, match="nests its content too deep"):
        read(nested(20_000) + b"\n" * 200_000)
    with pytest.raises(LoadError, match="nests its content too deep"):
        read(b"Content-Type: message/rfc822\n\n" * 5_000)
    many = b"Subject: s\nContent-Type: multipart/mixed; boundary=b\n\n" + b"--b\n\nx\n" * (MOST_PARTS + 1)
    with pytest.raises(LoadError, match="has more than 10,000 parts"):
        read(many)


HOSTILE = {
    "long": b"Subject: " + b"word " * 400_000,
    "comments": b"Subject: s\nTo: " + b"(" * 400_000,
    "people": b"Subject: s\nTo: " + b"a@b, " * 200_000,
    "encoded": b"Subject: " + b"=?utf-8?q?a?= " * 100_000,
    "folded": b"Subject: s\n" + b" word\n" * 300_000,
    "many": b"Subject: s\n" * 100_000,
    "quoted": b'Subject: s\nContent-Type: text/plain; charset="' + b"\\" * 400_000,
    "parameters": b"Subject: s\nContent-Type: text/plain" + b"; a*0=b" * 100_000,
    "brackets": b"Subject: s\nFrom: " + b"<" * 100_000 + b"\nTo: " + b'"' * 100_001 + b"\nDate: " + b"[" * 100_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_headers_that_were_made_to_take_for_ever(name: str) -> None:
    """A test that hangs here is the failure."""
    parsed = read(HOSTILE[name] + b"\n\nwords", SMALL)
    assert parsed.text.endswith("words")
    assert len(parsed.text) < 4 * LONGEST_TOLD
