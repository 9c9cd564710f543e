"""Mutated files of every format through loaders and splitters: each ends in a document or in one clear error.

    python -m tests.fuzz.files --seed 1 --count 10000 [--format docx]

Whatever else comes (another exception, too much time or memory, the end of the process) is a find: printed, with the
file that causes it.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import Any, Self

from app.errors import LoadError
from app.loaders import parse
from app.loaders.base import ParseLimits
from app.loaders.confinement import confine
from splitter import make_splitter
from splitter.base import ChunkLimits as Sizes
from tests.app.loaders.files import (
    write_chart,
    write_docx,
    write_epub,
    write_mixed_folder,
    write_notebook,
    write_opendocument,
)
from tests.app.loaders.mutations import mutated
from tests.splitter.words import Words

# Small, so that what is within them takes little time: the limits themselves are what is tested.
LIMITS = ParseLimits(
    max_expanded_bytes=40_000_000, max_xml_bytes=8_000_000, max_characters=100_000, max_pages=1_000, max_cells=500_000,
    max_memory=2 << 30,
)  # fmt: skip
PATIENCE = 60.0  # seconds for one file; what is slow on purpose takes hours
PARSED, REFUSED = "parsed", "refused"


def judged(name: str, data: bytes) -> str:
    """PARSED, REFUSED, or what went wrong. What is raised is a find, and ends the process."""
    try:
        parsed = parse(Path(name), data, LIMITS)
    except LoadError as error:
        return REFUSED if error.reason and ":" in error.reason else f"an error that says not what to do: {error}"
    parsed.check_integrity()
    pieces = make_splitter("auto", Words(), None, Sizes()).split(parsed.text, parsed.kind)
    assert all(first.end <= second.start for first, second in pairwise(pieces))
    assert all(Words().count(parsed.text[piece.start : piece.end]) <= Sizes.max_tokens for piece in pieces)
    for piece in pieces:
        parsed.locate(piece.start, piece.end)
    return PARSED


def _serve(connection: Connection, parent: int, memory: int, patience: float, log: Path) -> None:
    confine(parent, memory)
    warnings.simplefilter("ignore")  # libraries warn of what is odd in a file
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    faulthandler.enable()
    while True:
        faulthandler.cancel_dump_traceback_later()
        name, data = connection.recv()
        faulthandler.dump_traceback_later(patience * 0.9)
        connection.send(judged(name, data))


class Reader:
    """A process that judges one file at a time. One that a file has ended is started again."""

    def __init__(self, memory: int = LIMITS.max_memory, patience: float = PATIENCE):
        self._memory = memory
        self._patience = patience
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name, "log")
        self._log.touch()
        self._start()

    def judge(self, name: str, data: bytes) -> str:
        self._connection.send((name, data))
        if not self._connection.poll(self._patience):
            return self._anew(f"takes more than {self._patience:,.0f} seconds")
        try:
            told: str = self._connection.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            return self._anew(f"ends the process that reads it (exit status {self._process.exitcode})")
        return told

    def stop(self) -> None:
        self._end()
        self._folder.cleanup()

    def _anew(self, find: str) -> str:
        """After a find, which is told with where it was."""
        self._end()
        where = self._log.read_text(errors="replace")
        self._start()
        return f"{find}\n{where}"

    def _end(self) -> None:
        self._process.kill()
        self._process.join()
        self._connection.close()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, os.getpid(), self._memory, self._patience, self._log)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()


@dataclass
class Campaign:
    """What came of the files of one format."""

    name: str
    outcomes: Counter[str] = field(default_factory=Counter)
    finds: list[tuple[str, bytes]] = field(default_factory=list)


# Tags whose starts and ends may be told apart by where they stand.
NESTED = """<title>Page</title><h1>Coast</h1><pre><div><table><tr><td><pre>a</pre>b</td></tr></table></div></pre>
<table><tr><th>c<td><blockquote><ol><li><pre>d</pre><ul><li>e</ul></ol></blockquote><table><tr><td>f</table></table>
<svg><title>g</title><path/><foreignObject><p>h</p></foreignObject></svg><p>i<select><option>j</select>"""
CHAT = """[{"id": 1, "title": "k", "messages": [{"role": "l", "content": "m"}, {"role": "n", "content": "o"}]}]"""
MAIL = f"""Subject: =?utf-8?q?s=C3=BC=C3=9F?=\nFrom: A <a@b>\nContent-Type: multipart/mixed; boundary=x\n
--x\nContent-Type: multipart/alternative; boundary=y\n\n--y\nContent-Type: text/plain; charset=cp1252\n
--y\nContent-Type: text/html\nContent-Transfer-Encoding: quoted-printable\n\n{NESTED}\n--y--
--x\nContent-Type: image/png; name*=utf-8''%C3%BC.png\nContent-Transfer-Encoding: base64\n\nAAAA
--x\nContent-Type: message/rfc822\n\nSubject: r\nTo: (s) t@u\n\nv\n--x--\n"""
OFFICE = """<text:tracked-changes><text:p>a</text:p></text:tracked-changes><text:h text:outline-level="2">b</text:h>
<text:list text:style-name="L" text:continue-numbering="true"><text:list-item text:start-value="3"><text:p>c<text:s
text:c="2"/><text:note><text:note-body><text:p>d</text:p></text:note-body></text:note></text:p></text:list-item></text:list>
<text:p>e<office:annotation><dc:creator>f</dc:creator><text:p>g</text:p></office:annotation></text:p><draw:object/>"""
SHEETS = """<table:table table:name="a"><table:table-row table:number-rows-repeated="3"><table:table-cell
table:number-columns-repeated="2" table:number-columns-spanned="2" office:value-type="float" office:value="1.5">
<text:p>b</text:p></table:table-cell><table:covered-table-cell/><table:table-cell office:value-type="date"
office:date-value="2024-01-31T00:00:00"/></table:table-row></table:table>"""
SLIDES = f"""<draw:page><draw:frame presentation:class="title" svg:y="2cm" svg:x="1in">{OFFICE}</draw:frame>
<draw:frame>{SHEETS}</draw:frame><presentation:notes><draw:frame><text:p>h</text:p></draw:frame></presentation:notes>
</draw:page><draw:page/>"""
RICH = r"""{\rtf1\ansi\ansicpg1252\deff0{\fonttbl{\f0\fcharset0 a;}{\f1\fcharset128 b;}}{\stylesheet{\s1 heading 1;}}
{\info{\title{\upr{c}{\*\ud{\u26481?}}}}}\pard\s1 d\'e9\par\pard{\listtext\'b7\tab}\ilvl1 e\u-10179?\u-8704?\par
\trowd\pard\intbl f\cell{\f1\'93\'8c}\nestcell\cell\row\pard g{\footnote h}{\*\atnauthor i}{\*\annotation j}\par
{\shp{\*\shpinst{\sp{\sn k}{\sv l}}{\shptxt m\par}}}{\field{\*\fldinst n}{\fldrslt o}}{\pict\bin3 }}}{\v p}\~\emdash}"""
PRINTED: list[dict[str, object]] = [
    {"output_type": "stream", "text": ["w\r", "\x1b[1mx\n"]},
    {"output_type": "display_data", "data": {"text/plain": "<y>", "text/html": NESTED, "image/png": "AAAA"}},
    {"output_type": "error", "ename": "z", "evalue": "a", "traceback": ["b"]},
]
CELLS: list[dict[str, object]] = [
    {"cell_type": "heading", "level": 2, "source": ["c\n", "![d](data:image/png;base64,AAAA)"]},
    {"cell_type": "code", "input": "```", "outputs": PRINTED},
]
FIELDS = "".join(f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end"))


def seeds() -> Mapping[str, bytes]:
    """A sound file of every format, by its suffix, with what its loader has code for."""
    with tempfile.TemporaryDirectory() as name:
        folder = write_mixed_folder(Path(name))
        write_docx(folder / "log.docx", [("Heading1", "Log book"), ("Normal", "p")], extra=f"<w:p>{FIELDS}</w:p>")
        write_chart(folder / "talk.pptx", "LINE", _numbers())
        write_epub(folder / "novel.epub", {"one.xhtml": NESTED, "two.xhtml": "<pre><![CDATA[q < r]]></pre>"})
        (folder / "page.html").write_text(f"<html>{NESTED}", encoding="utf-8")
        (folder / "paper.rtf").write_text(RICH, encoding="utf-8")
        (folder / "letter.eml").write_text(MAIL, encoding="utf-8")
        for name, body in (("memo.odt", OFFICE + SHEETS), ("oil.ods", SHEETS), ("slides.odp", SLIDES)):
            write_opendocument(folder / name, body)
        write_notebook(folder / "study.ipynb", CELLS)
        (folder / "data.json").write_text(CHAT, encoding="utf-8")
        (folder / "data.jsonl").write_text(CHAT[1:-1], encoding="utf-8")
        return {path.suffix[1:]: path.read_bytes() for path in sorted(folder.iterdir())}


def _numbers() -> Any:
    """Of a chart."""
    from pptx.chart.data import CategoryChartData

    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]  # python-pptx leaves it unannotated
    data.categories = ["s", "t"]
    data.add_series("u", (1.5, 2))
    return data


def case(name: str, sound: bytes, seed: int, number: int) -> bytes:
    return mutated(Random(f"{seed} {name} {number}"), name, sound)


class Readers:
    """Several, for threads to take turns at. Use it in a `with`."""

    def __init__(self, number: int):
        self._all = [Reader() for _ in range(number)]
        self._idle: SimpleQueue[Reader] = SimpleQueue()
        for reader in self._all:
            self._idle.put(reader)
        self._threads = ThreadPoolExecutor(number)

    def run(self, name: str, sound: bytes, seed: int, count: int) -> Campaign:
        def judge(number: int) -> str:
            reader = self._idle.get()
            try:
                return reader.judge(f"case.{name}", case(name, sound, seed, number))
            finally:
                self._idle.put(reader)

        campaign = Campaign(name)
        for number, told in enumerate(self._threads.map(judge, range(count))):
            known = told in (PARSED, REFUSED)
            campaign.outcomes[told if known else "finds"] += 1
            if not known:
                campaign.finds.append((told, case(name, sound, seed, number)))
        return campaign

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for reader in self._all:
            reader.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=100, help="files per format")
    parser.add_argument("--format", choices=sorted(seeds()))
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    with Readers(given.workers) as readers:
        chosen = {name: sound for name, sound in seeds().items() if given.format in (None, name)}
        finds = [report(readers.run(name, sound, given.seed, given.count)) for name, sound in chosen.items()]
    sys.exit(1 if sum(finds) else 0)


def report(campaign: Campaign) -> int:
    """What came of it, and each find with its file -> how many there are."""
    print(f"{campaign.name}: {campaign.outcomes.total()} files, {dict(campaign.outcomes)}", flush=True)
    for number, (told, data) in enumerate(campaign.finds):
        path = Path(tempfile.mkdtemp(prefix="ragcache-fuzz-")) / f"{number}.{campaign.name}"
        path.write_bytes(data)
        print(f"  {path}: {told}", flush=True)
    return len(campaign.finds)


if __name__ == "__main__":
    main()
