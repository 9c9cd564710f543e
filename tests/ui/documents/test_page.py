"""The page over a real server: from nothing to documents that are looked at, sent anew and deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from streamlit.testing.v1 import AppTest

from app import Settings
from app.client import library
from app.client.connection import Record, ServerConnection
from app.client.files import SAME_NAME
from app.library.catalog import open_catalog
from app.samples import read_samples
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from tests.waiting import wait_until
from ui import access
from ui.documents.document import READ

PATIENCE_S = 60.0
READER = "X-Key-Of-A-Reader"  # kept beside the client's own, and read by no server
HOSTILE = "![x](http:¦¦evil.example) <b>.md"  # as far as a name may go


def script() -> None:
    import streamlit as st

    from ui.bridge import Action
    from ui.documents.page import show

    done = st.session_state.get("done", None)
    st.session_state["done"] = None
    show(Action(*done) if done else None)


@pytest.fixture(scope="module")
def client(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("documents")
    tiny = write_tiny_folder(tmp_path_factory.mktemp("tiny"), smollm2)
    settings = Settings(model=str(tiny), data_dir=folder / "data", cache_dir=folder / "cache")
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
        _, reader = catalog.keys.create("reader", ["read"])
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        client.headers[READER] = reader
        yield client


@pytest.fixture
def page(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[AppTest]:
    """Of whoever has the key of the admin. Each test begins with nothing."""
    for one in client.get("/v1/collections").json()["data"]:
        assert client.delete(f"/v1/collections/{one['name']}").status_code == 200
    monkeypatch.setenv("RAGCACHE_SERVER", str(client.base_url))
    monkeypatch.setenv("RAGCACHE_API_KEY", client.headers["Authorization"].removeprefix("Bearer "))
    access.server.cache_clear()
    yield AppTest.from_function(script, default_timeout=PATIENCE_S)
    access.server.cache_clear()


def shown(page: AppTest) -> str:
    assert not page.exception, page.exception
    return "\n".join(str(one.proto.body) for one in page.get("html"))


def act(page: AppTest, name: str, value: str) -> AppTest:
    page.session_state["done"] = (name, value)
    return page.run()


def ended(client: httpx2.Client) -> list[str]:
    wait_until(lambda: all(one["state"] in ("done", "failed") for one in jobs(client)), PATIENCE_S)
    return [one["state"] for one in jobs(client)]


def jobs(client: httpx2.Client) -> list[dict[str, str]]:
    found: list[dict[str, str]] = client.get("/v1/jobs").json()["data"]
    return found


def button(page: AppTest, text: str) -> AppTest:
    (found,) = [one for one in page.button if one.label == text]
    return found.click().run()


def test_samples_in_one_click(page: AppTest, client: httpx2.Client) -> None:
    assert "Nothing is here yet" in shown(page.run())
    button(page, "Load the sample documents")
    assert len(jobs(client)) == len(read_samples())
    assert set(ended(client)) == {"done"}
    html = shown(page.run())
    assert all(name in html for name in read_samples())
    assert any("3 documents are in." in one.value for one in page.markdown)
    assert "KV of 0 of" not in html


def test_files_that_are_dropped_are_sent_and_refusals_are_told(page: AppTest, client: httpx2.Client) -> None:
    page.run()
    files = [("broken.pdf", b"%PDF-1.4 no more", "application/pdf"), ("odd.xyz", b"x", ""), (HOSTILE, b"# Quays", "")]
    page.file_uploader[0].set_value(files).run()
    html = shown(page)
    assert "odd.xyz" in html and "which no loader reads" in html
    ended(client)
    html = shown(page.run())
    assert "broken.pdf is damaged" in html and 'data-rc="job-retry"' not in html
    assert "&lt;b&gt;.md" in html and "<b>" not in html
    failed = next(one["id"] for one in jobs(client) if one["state"] == "failed")
    act(page, "job-retry", failed)  # of a page that was drawn before
    assert "send it again" in shown(page)
    act(page, "job-hide", failed)
    assert "broken.pdf is damaged" not in shown(page)


def test_of_files_of_one_name_the_first_goes_in_and_the_others_are_refused(
    page: AppTest, client: httpx2.Client
) -> None:
    page.run()
    files = [("quays.md", b"# Quays", ""), ("other.md", b"# Others", ""), ("quays.md", b"# Other quays", "")]
    page.file_uploader[0].set_value(files).run()
    assert shown(page).count(f"quays.md: {SAME_NAME}") == 1
    assert ended(client) == ["done", "done"]
    (collection,) = client.get("/v1/collections").json()["data"]
    documents = client.get(f"/v1/collections/{collection['name']}/documents").json()["data"]
    assert sorted(one["title"] for one in documents) == ["Others", "Quays"]


def test_a_document_is_opened_and_deleted_with_what_hangs_on_it(page: AppTest, client: httpx2.Client) -> None:
    client.post("/v1/collections", json={"name": "shelf"})
    client.put("/v1/collections/shelf/documents/quays.md", content=b"# Quays\n\nThe <i>quays</i> of Tarrow are old.")
    assert ended(client)[0] == "done"
    (one,) = client.get("/v1/collections/shelf/documents").json()["data"]
    act(page, "document", str(one["id"]))
    html = shown(page)
    assert 'class="rc-chunk rc-hue-0"' in html and "&lt;i&gt;quays&lt;/i&gt;" in html and "its KV is kept" in html
    assert page.query_params["document"] == str(one["id"])
    button(page, "Delete it")
    assert client.get("/v1/collections/shelf/documents").json()["data"] == []
    assert "document" not in page.query_params
    assert any("is deleted" in one.value for one in page.success)


@pytest.mark.parametrize(("name", "kinds"), [("README", []), ("quays.md", [".md"])])
def test_a_new_version_has_the_suffix_of_the_old_one_if_any(
    page: AppTest, client: httpx2.Client, name: str, kinds: list[str]
) -> None:
    client.post("/v1/collections", json={"name": "shelf"})
    client.put(f"/v1/collections/shelf/documents/{name}", content=b"The quays are old.")
    ended(client)
    (one,) = client.get("/v1/collections/shelf/documents").json()["data"]
    act(page, "document", str(one["id"]))
    (uploader,) = [one for one in page.file_uploader if one.label == "New version"]
    assert list(uploader.proto.type) == kinds
    uploader.set_value((name, b"The quays are new.", "")).run()
    ended(client)
    (one,) = client.get("/v1/collections/shelf/documents").json()["data"]
    found = client.get(f"/v1/collections/shelf/documents/{one['id']}").json()
    assert (one["name"], found["text"]) == (name, "The quays are new.")


def test_a_text_is_fetched_again_where_it_has_changed_alone(
    page: AppTest, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched, fetch = [], library.document

    def counted(connection: ServerConnection, collection: str, document_id: int) -> Record:
        fetched.append(document_id)
        return fetch(connection, collection, document_id)

    monkeypatch.setattr(library, "document", counted)
    client.post("/v1/collections", json={"name": "shelf"})
    client.put("/v1/collections/shelf/documents/quays.md", content=b"# Quays\n\nThe quays of Tarrow are old.")
    ended(client)
    (one,) = client.get("/v1/collections/shelf/documents").json()["data"]
    act(page, "document", str(one["id"]))
    assert "are old" in shown(page.run())
    assert len(fetched) == 1
    client.put("/v1/collections/shelf/documents/quays.md", content=b"# Quays\n\nThe quays of Tarrow are new by now.")
    ended(client)
    (one,) = client.get("/v1/collections/shelf/documents").json()["data"]
    page.query_params["document"] = str(one["id"])
    assert "new by now" in shown(page.run())
    assert len(fetched) == 2
    button(page, "All documents")
    assert READ not in page.session_state, "it is held no longer than it is open"


def test_a_key_that_reads_is_offered_nothing_else(
    page: AppTest, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post("/v1/collections", json={"name": "shelf"})
    monkeypatch.setenv("RAGCACHE_API_KEY", client.headers[READER])
    access.server.cache_clear()
    assert "This key reads and asks" in shown(page.run())
    assert not page.file_uploader


def test_a_click_meant_for_a_collection_that_has_gone_deletes_no_other(page: AppTest, client: httpx2.Client) -> None:
    for name in ("archive", "shelf"):
        client.post("/v1/collections", json={"name": name})
        client.put(f"/v1/collections/{name}/documents/quays.md", content=b"# Quays\n\nThe quays are old.")
    ended(client)
    page.query_params["collection"] = "shelf"
    page.run()
    client.delete("/v1/collections/shelf")
    button(page, "Delete it all")
    assert "The collection that was open is not there any more" in shown(page)
    assert [one["name"] for one in client.get("/v1/collections").json()["data"]] == ["archive"]


@pytest.mark.parametrize("told", ["²", "9" * 5000, "-1", "1.5"])
def test_an_address_that_names_no_number_is_a_page(page: AppTest, client: httpx2.Client, told: str) -> None:
    client.post("/v1/collections", json={"name": "shelf"})
    client.put("/v1/collections/shelf/documents/quays.md", content=b"# Quays\n\nThe quays are old.")
    ended(client)
    for name in ("document", "after", "at"):
        page.query_params["collection"], page.query_params[name] = "shelf", told
        shown(page.run())
