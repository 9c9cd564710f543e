"""Files of several keys over HTTP: what one sends holds up no other, and what it is told of its jobs is so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app import Settings
from app.samples import read_samples
from app.server.service import Service
from tests.app.loaders.files import write_pdf
from tests.app.server.event_streams import asked
from tests.app.server.serving import serving
from tests.app.server.uploads import sent

LONG = "\n\n".join(f"Entry {entry}. " + "The fog came in again. " * 20 for entry in range(200))
Keys = dict[str, dict[str, str]]


@pytest.fixture
def settings(tiny_folder: Path, tmp_path: Path) -> Settings:
    return Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")


@pytest.fixture
def keys() -> Keys:
    return {}


@pytest.fixture
def client(settings: Settings, keys: Keys) -> Iterator[httpx2.Client]:
    """As anna; `keys` are the headers of both."""
    service = Service(settings)
    for name, scopes in {"anna": ["read", "ingest", "admin"], "ben": ["read", "ingest"]}.items():
        _, key = service.catalog.keys.create(name, scopes)
        keys[name] = {"Authorization": f"Bearer {key}"}
    with serving(service, keys["anna"]) as client:
        for name in ("shelf", "other"):
            assert client.post("/v1/collections", json={"name": name}).status_code == 201
        yield client


def test_a_file_that_is_read_for_long_holds_up_no_other_key(client: httpx2.Client, keys: Keys, tmp_path: Path) -> None:
    pages = [[f"Line {line} of page {page}: the fog came in again." for line in range(50)] for page in range(2500)]
    slow = write_pdf(tmp_path / "slow.pdf", pages).read_bytes()
    job = client.put("/v1/collections/shelf/documents/slow.pdf", content=slow).json()
    with httpx2.Client(base_url=client.base_url, headers=keys["ben"], timeout=60) as ben:
        done = sent(ben, "lighthouse.md", read_samples()["lighthouse.md"])
        assert done["state"] == "done", done
        model = ben.get("/v1/collections/shelf").json()["model"]
        body = {"model": model, "messages": [{"role": "user", "content": "Who designed it?"}], "max_tokens": 4}
        assert ben.post("/v1/chat/completions", json=body).json()["ragcache"][0]["citations"]
    told = client.get(f"/v1/jobs/{job['id']}").json()
    assert (told["state"], told["progress"]) == ("running", {})
    assert client.delete(f"/v1/jobs/{job['id']}").status_code == 200
    with asked(client, "GET", f"/v1/jobs/{job['id']}/events") as events:
        assert [one.data["state"] for one in events][-1] == "cancelled"


def test_a_document_can_be_asked_about_before_all_of_its_kv(
    client: httpx2.Client, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever follows its job sees that it comes, gives way, and goes on."""
    for seconds in ("TURN_S", "LOOK_S"):
        monkeypatch.setattr(f"app.ingestion.leased_run.{seconds}", 0.05)
    job = client.put("/v1/collections/shelf/documents/long.txt", content=LONG).json()
    with asked(client, "GET", f"/v1/jobs/{job['id']}/events") as events:
        seen = [next(events).data]
        while "kv" not in seen[-1]["progress"].get("stages", ()):
            seen.append(next(events).data)
        with httpx2.Client(base_url=client.base_url, headers=keys["ben"], timeout=60) as ben:
            assert sent(ben, "lighthouse.md", read_samples()["lighthouse.md"], "other")["state"] == "done"
        seen += [one.data for one in events]
    came = [one for one in seen if one["state"] != "done" and "document" in one["progress"]]
    assert came and all(one["progress"]["gave_way"] and one["progress"]["outcome"] == "added" for one in came)
    assert seen[-1]["state"] == "done" and "gave_way" not in seen[-1]["progress"]
    whole = seen[-1]["progress"]["chunks"]
    assert seen[-1]["progress"]["stages"]["kv"] == {"done": whole, "of": whole}
    (document,) = client.get("/v1/collections/shelf/documents", params={"kv": True}).json()["data"]
    assert (document["id"], document["cached"]) == (came[0]["progress"]["document"], document["chunks"])
