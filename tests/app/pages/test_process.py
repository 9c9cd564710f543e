"""One look at one page, of files that nobody has read before."""

from __future__ import annotations

import ast
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from time import monotonic

import pytest
from PIL import Image

from app.errors import LoadError, NotFound
from app.loaders import load
from app.loaders.base import Box
from app.loaders.pdf_pages import LONGEST, MOST_PIXELS, LinePart
from app.pages import ImageCache
from app.pages.process import DrawingLimits, PageLook
from tests.app.loaders.files import write_pdf
from tests.app.pages.pdfs import write_endless, write_huge, write_page, write_ribbon
from tests.waiting import wait_until

SHORT = DrawingLimits(core_s=1.0)
PATIENCE_S = 60.0


def look(path: Path, number: int = 1) -> PageLook:
    return PageLook(path, hashlib.sha256(path.read_bytes()).hexdigest(), number, "its name.pdf")


def opened(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data))


def is_dark(image: Image.Image, box: Box, scale: float) -> bool:
    """Whether anything is drawn inside a box of points."""
    cut = image.convert("L").crop(tuple(round(side * scale) for side in box))
    return min(cut.tobytes()) < 128


def test_a_page_is_drawn_as_it_is(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [["First line", "Second"], ["Another page"]])
    first, second = (opened(look(path, number).image(144, DrawingLimits())) for number in (1, 2))
    assert (first.format, first.size) == ("PNG", (1191, 1684))
    lines = load(path).lines
    assert all(is_dark(first, line.box, scale=2.0) for line in lines[:2])
    assert is_dark(second, lines[2].box, scale=2.0)
    assert not is_dark(second, lines[1].box, scale=2.0)


def test_a_part_of_a_line_has_its_own_box(tmp_path: Path) -> None:
    path = write_pdf(tmp_path / "a.pdf", [["First line", "Second"]])
    box = load(path).lines[0].box
    parts = [LinePart("First line", box, 0, 5), LinePart("First line", box, 6, 10), LinePart("No such line", box, 0, 2)]
    width, height, (first, second, none) = look(path).places(parts, DrawingLimits())
    assert (round(width), round(height)) == (595, 842)
    assert first is not None and second is not None
    assert box[0] == first[0] < first[2] < second[0] < second[2] == box[2]
    assert none is None


@pytest.mark.parametrize("write", [write_huge, write_ribbon])
def test_no_image_is_larger_than_allowed(write: Callable[[Path], Path], tmp_path: Path) -> None:
    width, height = opened(look(write(tmp_path / "a.pdf")).image(300, DrawingLimits())).size
    assert width * height <= 1.01 * MOST_PIXELS
    assert 1 <= max(width, height) <= LONGEST + 1


def test_what_never_ends_is_ended(tmp_path: Path) -> None:
    path = write_endless(tmp_path / "a.pdf")
    assert load(path).text, "it is sound for whoever reads its text"
    with pytest.raises(LoadError, match=r"its name\.pdf takes more than 1 seconds"):
        look(path).image(110, SHORT)


def test_what_needs_too_much_memory_is_told(tmp_path: Path) -> None:
    path = write_page(tmp_path / "a.pdf", size="4000 4000")
    with pytest.raises(LoadError, match=r"its name\.pdf "):
        look(path).image(110, DrawingLimits(memory=100 << 20))


def test_what_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="is encrypted"):
        look(write_pdf(tmp_path / "a.pdf", [["secret"]], password="x")).image(110, DrawingLimits())
    (tmp_path / "b.pdf").write_bytes(b"%PDF-1.7 and then nothing of one")
    with pytest.raises(LoadError, match="is damaged"):
        look(tmp_path / "b.pdf").places([], DrawingLimits())
    for path in (tmp_path, tmp_path / "none.pdf"):
        with pytest.raises(LoadError, match=r"its name\.pdf"):
            PageLook(path, "0" * 64, 1, "its name.pdf").image(110, DrawingLimits())


@pytest.mark.parametrize("apart", [False, True])
def test_what_a_page_has_started_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool) -> None:
    """A document that has taken its process over, which leaves another one behind that holds the pipes."""
    pid = tmp_path / "pid"
    start = f"import subprocess; child = subprocess.Popen(['sleep', '600'], start_new_session={apart})"
    monkeypatch.setattr("app.pages.process._START", f"{start}; open({str(pid)!r}, 'w').write(str(child.pid))")
    began, behind = monotonic(), list[float]()

    def clock() -> float:
        """It stands still until there is such a process."""
        if not behind and (monotonic() - began > PATIENCE_S or (pid.exists() and pid.read_text())):
            behind.append(monotonic())
        return monotonic() - behind[0] if behind else 0.0

    monkeypatch.setattr("app.pages.process.monotonic", clock)
    try:
        with pytest.raises(LoadError, match="takes more than"):
            look(write_page(tmp_path / "a.pdf")).places(
                [LinePart("x" * 200_000, (0.0, 0.0, 1.0, 1.0), 0, 1)], DrawingLimits(wall_s=0.5)
            )
    finally:
        left = int(pid.read_text())
        if apart:
            os.kill(left, signal.SIGKILL)
    wait_until(lambda: not is_alive(left), PATIENCE_S)


def test_an_image_is_no_longer_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_page(tmp_path / "a.pdf")
    monkeypatch.setattr("app.pages.process.LARGEST", 1000)
    with pytest.raises(LoadError, match="takes more than"):
        look(path).image(110, DrawingLimits())


def test_no_limit_is_raised_again(tmp_path: Path) -> None:
    told = "import resource as r; print([r.getrlimit(one) for one in (r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_NPROC)])"
    start = "import os; from app.loaders.confinement import confine, confine_time, seal; "
    confined = f"{start}confine(os.getppid(), 1 << 30); confine_time(10); seal(); {told}"
    ran = subprocess.run([sys.executable, "-c", confined], capture_output=True, text=True, check=True)
    (soft, most), (soft_s, most_s), processes = ast.literal_eval(ran.stdout)
    assert (soft, most, most_s - soft_s, processes) == (1 << 30, 1 << 30, 1, (0, 0))
    assert 10 < most_s < 30


def is_alive(pid: int) -> bool:
    """Also where nobody has asked how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_another_content_or_page_is_not_shown(tmp_path: Path) -> None:
    path = write_page(tmp_path / "a.pdf")
    with pytest.raises(NotFound, match="has no page 2: it has 1"):
        look(path, 2).image(110, DrawingLimits())
    before = look(path)
    write_pdf(path, [["Another text"]])
    with pytest.raises(NotFound, match="has changed"):
        before.image(110, DrawingLimits())


def test_images_are_kept_up_to_a_number_of_bytes() -> None:
    cache = ImageCache(100)
    for number in range(4):
        cache.put(("a", number, 72), bytes(40))
        assert cache.get(("a", 0, 72)) is not None, "it is asked for again and again"
        assert cache.nbytes <= 100
    assert [cache.get(("a", number, 72)) is not None for number in range(4)] == [True, False, False, True]
    cache.put(("a", 9, 72), bytes(101))
    assert (cache.get(("a", 9, 72)), cache.nbytes) == (None, 0)
