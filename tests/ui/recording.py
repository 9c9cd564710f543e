"""README's pictures, made anew: `python -m tests.ui.recording docs`. The chat with a source beside it, and an answer as
it comes, at the speed at which it came.
"""

from __future__ import annotations

import io
import sys
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from PIL import Image
from playwright.sync_api import expect

from app import Settings
from app.models.folders import resolve_model
from tests.app.server.serving import served
from tests.app.server.uploads import send_samples
from tests.ui.tabs import Tab, chromium, opened_page, tab

SHELF = "handbook"
FIRST, THEN = "When was the light first shown?", "Who designed the lighthouse?"
SIZE = {"width": 1280, "height": 800}
SHOWN = (960, 600)  # of the recording
COLOURS, LAST_MS = 64, 3000
MOST, MOST_PICTURES = 1 << 20, 500  # bytes, and pictures of an answer


def main(folder: Path) -> None:
    with TemporaryDirectory() as own:
        settings = Settings(data_dir=Path(own) / "data", cache_dir=Path(own) / "cache")
        model = resolve_model(settings.model, settings.cache_dir)
        with served(settings.model_copy(update={"model": str(model)})) as client:
            send_samples(client, SHELF)
            with opened_page(str(client.base_url)) as url, chromium() as browser, tab(browser, url, SIZE) as seen:
                seen.go()
                seen.ask(FIRST)
                seen.answered()
                _record(seen, folder / "answer.gif")
                seen.page.locator(".rc-cite").last.click()
                expect(seen.page.locator(".rc-panel")).to_be_visible()
                seen.settled()
                seen.page.mouse.move(0, 0)
                _few_colours(Image.open(io.BytesIO(seen.page.screenshot()))).save(folder / "chat.png", optimize=True)


def _record(seen: Tab, path: Path) -> None:
    """From the moment that the question is there; each picture stays until the next was taken."""
    seen.page.get_by_test_id("stChatInputTextArea").fill(THEN)
    taken, before = [(perf_counter(), seen.page.screenshot())], seen.answers.count()
    seen.page.get_by_test_id("stChatInputTextArea").press("Enter")
    again = seen.page.get_by_role("button", name="Again", exact=True)
    for _ in range(MOST_PICTURES):
        taken.append((perf_counter(), seen.page.screenshot()))
        if seen.answers.count() > before and again.is_visible():
            break
    seen.settled()
    taken.append((perf_counter(), seen.page.screenshot()))
    pictures = [_few_colours(Image.open(io.BytesIO(png)).resize(SHOWN, Image.Resampling.LANCZOS)) for _, png in taken]
    lasted = [round(1e3 * (after - begin)) for (begin, _), (after, _) in pairwise(taken)]
    first, *others = pictures
    first.save(path, save_all=True, append_images=others, duration=[*lasted, LAST_MS], loop=0, optimize=True)
    print(f"{path}: {len(pictures)} pictures of {sum(lasted) / 1e3:.1f} s, {path.stat().st_size:,} bytes")
    assert path.stat().st_size <= MOST, "it is too large to stand in README"


def _few_colours(picture: Image.Image) -> Image.Image:
    return picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
