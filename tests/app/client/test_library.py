"""A server's library by its client: sent from memory, followed, looked at, and refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from app import Settings
from app.client import library
from app.client.address import NamedServer
from app.client.connection import ServerConnection, ServerError
from tests.app.server.serving import served


@pytest.fixture(scope="module")
def connection(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerConnection]:
    folder = tmp_path_factory.mktemp("library")
    settings = Settings(model=str(tiny_folder), data_dir=folder / "data", cache_dir=folder / "cache")
    with served(settings) as client:
        connection = ServerConnection(NamedServer.read(str(client.base_url), None, "here", "KEY", ""))
        library.create(connection, "shelf")
        yield connection


def test_a_file_from_memory_is_followed_to_its_end(connection: ServerConnection) -> None:
    file = BytesIO(b"# Quays\n\nThe quays of Tarrow are old.")
    file.read(5)  # it is sent from its beginning
    job = library.send(connection, "shelf", "quays of Tarrow.md", file)
    seen = [one["state"] for one in library.follow(connection, job["id"])]
    assert seen[-1] == "done"
    ((one,), more) = library.page_of_documents(connection, "shelf")
    assert (one["name"], one["cached"], more) == ("quays of Tarrow.md", one["chunks"], False)
    assert [library.listed_document(connection, "shelf", n) for n in (one["id"], 0, one["id"] + 1)] == [one, None, None]
    whole = library.document(connection, "shelf", one["id"])
    assert whole["text"].startswith("# Quays") and whole["chunks"][0]["cached"] is True
    assert [one["name"] for one in library.jobs(connection, "shelf")] == ["quays of Tarrow.md"]
    library.create(connection, "other")
    assert library.jobs(connection, "other") == []
    library.send(connection, "other", "bells.md", BytesIO(b"# Bells\n\nThey ring."))
    assert [one["name"] for one in library.jobs(connection, "shelf", 1)] == ["quays of Tarrow.md"], "of it alone"
    assert library.suggested_questions(connection, "shelf") == ["What is “Quays” about?"]
    assert library.cache_shares(connection)["shelf"]["cached"] > 0
    assert "linker" in {one["name"] for one in library.settings(connection)}


def test_refusals_are_told(connection: ServerConnection) -> None:
    with pytest.raises(ServerError, match="already") as raised:
        library.create(connection, "shelf")
    assert raised.value.answered == 409
    with pytest.raises(ServerError, match="no loader reads"):
        library.send(connection, "shelf", "odd.xyz", BytesIO(b"x"))
    with pytest.raises(ServerError, match="no collection"):
        library.jobs(connection, "nowhere")
    with pytest.raises(ServerError, match="no job"):
        library.cancel(connection, "none")
