"""Pages of PDF documents over HTTP: as they are, for those alone who may see the document, and whatever it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import httpx2
import pytest
from PIL import Image

from app import RagPipeline, Settings
from app.library.originals import FOLDER
from app.pages.process import DrawingLimits
from tests.app.loaders.files import write_pdf
from tests.app.pages.pdfs import write_endless
from tests.app.server.serving import served
from tests.app.server.uploads import sent

LINES = [["The lighthouse of Cape Arden", "was built in 1846."], ["Three keepers lived there."]]
SHORT = DrawingLimits(core_s=2.0)


@dataclass(frozen=True)
class PagedServer:
    client: httpx2.Client  # of an admin
    stranger: dict[str, str]  # headers of a key of another collection
    uploaded: str  # the path of a document that was sent
    ingested: str  # and of one that the server's machine has ingested
    folder: Path


@pytest.fixture(scope="module")
def paged(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PagedServer]:
    folder = tmp_path_factory.mktemp("paged")
    settings = Settings(model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache", kv="on-use")
    with RagPipeline(settings) as pipeline:
        pipeline.ingest(write_pdf(folder / "own.pdf", LINES), "shelf")
        other = pipeline.library.collection_or_new("other")
        _, admin = pipeline.library.catalog.keys.create("admin", ["admin"])
        _, stranger = pipeline.library.catalog.keys.create("stranger", ["read"], collections=[other])
    data = write_pdf(folder / "sent.pdf", [*LINES, ["And one page more."]]).read_bytes()
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        job = sent(client, "lighthouse.pdf", data)
        listed = client.get("/v1/collections/shelf/documents").json()["data"]
        (own,) = (one["id"] for one in listed if one["name"].endswith("own.pdf"))
        place = "/v1/collections/shelf/documents"
        yield PagedServer(
            client,
            {"Authorization": f"Bearer {stranger}"},
            f"{place}/{job['progress']['document']}",
            f"{place}/{own}",
            folder,
        )


def test_pages_are_images(paged: PagedServer) -> None:
    for document, number in ((paged.uploaded, 3), (paged.ingested, 2)):
        found = paged.client.get(f"{document}/pages/{number}", params={"dpi": 72})
        assert (found.status_code, found.headers["content-type"]) == (200, "image/png"), found.text
        image = Image.open(BytesIO(found.content))
        assert (image.format, image.size) == ("PNG", (596, 842))
        again = paged.client.get(f"{document}/pages/{number}", params={"dpi": 72})
        assert again.content == found.content
        held = {"If-None-Match": found.headers["etag"]}
        assert paged.client.get(f"{document}/pages/{number}", params={"dpi": 72}, headers=held).status_code == 304
        assert paged.client.get(f"{document}/pages/{number}", headers=held).status_code == 200


def test_a_span_has_boxes_where_it_stands(paged: PagedServer) -> None:
    text = paged.client.get(paged.uploaded).json()["text"]
    start, end = text.index("Cape"), text.index("1846") + 4
    told = paged.client.get(f"{paged.uploaded}/pages/1/boxes", params={"start": start, "end": end}).json()
    assert (round(told["width"]), round(told["height"])) == (595, 842)
    first, second = told["boxes"]
    assert (text[first["start"] : first["end"]], text[second["start"] : second["end"]]) == (
        "Cape Arden",
        "was built in 1846",
    )
    assert 72 / 595 < second["left"] + 0.01 < first["left"] < first["right"] < 1
    assert 0 < first["top"] < first["bottom"] <= second["top"] < second["bottom"] < 0.2
    image = Image.open(BytesIO(paged.client.get(f"{paged.uploaded}/pages/1").content)).convert("L")
    for box in (first, second):
        sides = [box["left"], box["top"], box["right"], box["bottom"]]
        cut = image.crop([round(side * of) for side, of in zip(sides, image.size * 2, strict=True)])
        assert min(cut.tobytes()) < 128, "its letters are there"
    whole = paged.client.get(f"{paged.uploaded}/pages/1/boxes").json()
    assert [text[one["start"] : one["end"]] for one in whole["boxes"]] == LINES[0]
    assert text[whole["start"] : whole["end"]] == "\n".join(LINES[0])
    assert paged.client.get(f"{paged.uploaded}/pages/2/boxes", params={"end": end}).json()["boxes"] == []


@pytest.mark.parametrize("page", ["pages/1", "pages/1/boxes"])
def test_another_keys_document_is_not_there(paged: PagedServer, page: str) -> None:
    number = paged.uploaded.rpartition("/")[2]
    for collection in ("shelf", "other", "nope"):
        path = f"/v1/collections/{collection}/documents/{number}/{page}"
        assert paged.client.get(path, headers=paged.stranger).status_code == 404
    assert paged.client.get(f"/v1/collections/other/documents/{number}/{page}").status_code == 404


@pytest.mark.parametrize(
    ("page", "status"),
    [
        ("4", 404),
        ("4/boxes", 404),
        ("0", 400),
        ("x", 400),
        (str(2**70), 400),
        ("1?dpi=0", 400),
        ("1?dpi=100000", 400),
        ("1/boxes?start=-1", 400),
        (f"1/boxes?end={2**70}", 400),
    ],
)
def test_what_is_no_page_is_refused(paged: PagedServer, page: str, status: int) -> None:
    assert paged.client.get(f"{paged.uploaded}/pages/{page}").status_code == status


def test_a_document_of_another_format_has_none(paged: PagedServer) -> None:
    document = sent(paged.client, "note.txt", "No pages at all.")["progress"]["document"]
    found = paged.client.get(f"/v1/collections/shelf/documents/{document}/pages/1")
    assert (found.status_code, "no PDF" in found.json()["error"]["message"]) == (404, True)


def test_a_file_that_has_changed_or_gone_is_not_shown(paged: PagedServer) -> None:
    own = paged.folder / "own.pdf"
    before = own.read_bytes()
    try:
        write_pdf(own, [["A text that nobody has ingested."]])
        changed = paged.client.get(f"{paged.ingested}/pages/1", params={"dpi": 50})
        assert (changed.status_code, "has changed" in changed.json()["error"]["message"]) == (404, True)
        own.unlink()
        for path in ("pages/1", "pages/1/boxes"):
            gone = paged.client.get(f"{paged.ingested}/{path}")
            assert (gone.status_code, "no longer there" in gone.json()["error"]["message"]) == (404, True)
    finally:
        own.write_bytes(before)
    assert paged.client.get(f"{paged.ingested}/pages/1", params={"dpi": 50}).status_code == 200


def test_a_new_version_has_its_own_pages(paged: PagedServer, tmp_path: Path) -> None:
    def version(text: str) -> bytes:
        job = sent(paged.client, "version.pdf", write_pdf(tmp_path / "a.pdf", [[text]]).read_bytes())
        return paged.client.get(f"/v1/collections/shelf/documents/{job['progress']['document']}/pages/1").content

    assert version("The first version.") != version("Another one.")


def test_no_document_holds_the_server_up(paged: PagedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_endless(paged.folder / "endless.pdf").read_bytes()
    job = sent(paged.client, "endless.pdf", data)
    assert job["state"] == "done", "it is sound for whoever reads its text"
    page = f"/v1/collections/shelf/documents/{job['progress']['document']}/pages/1"
    with monkeypatch.context() as patch:
        patch.setattr("app.pages.LIMITS", SHORT)  # for it alone: a slow machine takes as long to draw another
        found = paged.client.get(page)
    assert found.status_code == 422
    message = found.json()["error"]["message"]
    assert message.startswith("endless.pdf takes more than")
    assert FOLDER not in message, "where files lie is nobody's business"
    assert paged.client.get(f"{page}/boxes").json()["boxes"], "where its text stands is told all the same"
    assert paged.client.get(f"{paged.uploaded}/pages/1").status_code == 200
    assert paged.client.get("/health").status_code == 200
