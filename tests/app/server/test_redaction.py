"""What is told of an answer has no places of the server in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest

from app import RagPipeline, Settings
from app.library.catalog.records import Collection
from app.library.catalog.serving_records import StoredJob
from app.library.catalog.tables import now
from app.server.callers import Caller
from app.server.jobs import card_of
from app.server.redaction import placeless
from tests.app.server.serving import beside, served


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ("the header of /srv/My Docs/a b.kv does not match", "the header of … b.kv does not match"),
        ("no report: http://10.0.0.7:8000: Connection refused", "no report: … Connection refused"),
        (r"C:\Users\me\a.kv and s3://bucket/b are gone", "… are gone"),
        ("one of 5 passages did not fit", "one of 5 passages did not fit"),
        ("a/b\nc d/e\n\n f", "…\nc …\n\n f"),
    ],
)
def test_paths_and_addresses_are_left_out(told: str, left: str) -> None:
    assert placeless(told) == left


def test_a_word_without_any_is_looked_through_once() -> None:
    """Else for days, in which nothing of the server moves."""
    assert placeless("x" * 4_000_000) == "x" * 4_000_000


def test_a_job_tells_folders_to_whoever_runs_the_server_alone() -> None:
    full = "the disk of /srv/acme/kv is nearly full: 0.00 GiB are free"
    job = StoredJob("a", "ingest", 1, "anna", "failed", {"name": "a.pdf", "size": 1}, now(), {"notes": [full]}, full)
    collection = Collection(1, "u", "default", "minilm", "f", 3, None, None, "fixed", {}, now())
    for scope, shown in (("ingest", "the disk of … is nearly full: 0.00 GiB are free"), ("admin", full)):
        card = card_of(job, collection, Caller("anna", frozenset([scope])))
        assert (card.error, card.progress["notes"]) == (shown, [shown])


def damaged(folder: Path) -> None:
    files = list(folder.rglob("*.kv"))
    assert files
    for path in files:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def reports(client: httpx2.Client, name: str) -> list[dict[str, Any]]:
    """Of one question, by the routes that tell of answers."""
    model = f"{client.get('/v1/models').json()['data'][0]['id']}@{name}"
    body = {"model": model, "messages": [{"role": "user", "content": "Who designed it?"}], "max_tokens": 2}
    one = client.post("/v1/chat/completions", json=body).json()["ragcache"][0]["report"]
    path = f"/v1/conversations/{client.post('/v1/conversations', json={'collection': name}).json()['id']}"
    asked = {"question": "Who designed it?", "max_tokens": 2, "stream": False}
    said = client.post(f"{path}/messages", json=asked).json()["answer"]["report"]
    stored = client.get(f"{path}/messages").json()["data"][-1]["report"]
    return [one, said, stored]


def test_a_damaged_entry_is_told_without_where_it_is(sampled: Settings, tmp_path: Path) -> None:
    settings = beside(sampled, tmp_path).model_copy(update={"kv": "eager"})
    with RagPipeline(settings) as pipeline:
        text = settings.data_dir / "tower.md"
        text.write_text("# The tower\n\n" + "It was designed by Ada Holm, who had built bridges. " * 30)
        assert pipeline.ingest(text, collection="towers").added == 1
    damaged(settings.kv_folder)
    with served(settings) as client:
        incidents = [told for report in reports(client, "towers") for told in report["incidents"]]
    assert incidents
    assert "checksum" in incidents[0]
    assert not [told for told in incidents if str(tmp_path) in told or "/" in told]
