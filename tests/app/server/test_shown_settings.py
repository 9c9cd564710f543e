"""What a server tells of its settings: what shapes answers, and neither folders nor secrets."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest

from app import Settings
from app.library.catalog import open_catalog
from app.server.questions import AskedQuestion
from app.server.shown_settings import BUDGETS, BY_QUESTION
from app.settings import variable
from tests.app.server.serving import served


def test_values_choices_and_variables(client: httpx2.Client) -> None:
    shown = {one["name"]: one for one in client.get("/v1/settings").json()["data"]}
    assert shown["linker"]["value"] == "query"
    assert shown["linker"]["variable"] == "RAGCACHE_LINKER"
    assert {"full", "auto", "fast"} <= set(shown["linker"]["choices"])
    assert shown["retrieval"]["choices"] == ["hybrid", "vector", "keyword"]
    anew = {"model", "embedder", "splitter", "codec", "chunk_tokens", "min_chunk_tokens"}
    assert {name for name, one in shown.items() if one["anew"]} == anew
    assert all(one["variable"] == variable(name) for name, one in shown.items())


def test_what_a_question_may_bring_is_a_field_of_questions() -> None:
    assert set(BY_QUESTION.values()) <= set(AskedQuestion.model_fields)
    assert set(BY_QUESTION) <= set(Settings.model_fields)


def test_no_folder_and_no_strategy_of_its_own_is_told(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", splitter="our.secret:Splitter"
    )
    with open_catalog(settings) as catalog:
        keys = {scope: catalog.keys.create(scope, [scope])[1] for scope in ("read", "ingest", "admin")}  # type: ignore[list-item]
    with served(settings, waits=False) as client:
        told = {
            scope: client.get("/v1/settings", headers={"Authorization": f"Bearer {key}"}) for scope, key in keys.items()
        }
        assert client.get("/v1/settings").status_code == 401
    assert all(one.status_code == 200 for one in (told["read"], told["admin"]))
    assert not any(hidden in told["admin"].text for hidden in (str(tmp_path), str(tiny_folder), "our.secret"))
    budgets = {scope: {one["name"] for one in told[scope].json()["data"]} & set(BUDGETS) for scope in ("read", "admin")}
    assert budgets == {"read": set(), "admin": set(BUDGETS)}


@pytest.mark.parametrize("name", ["rerank@2", "", "plain"])
def test_models_have_whatever_names_and_no_places(tiny_folder: Path, tmp_path: Path, name: str) -> None:
    """Nobody asks a reranker by its name, so it may have an @."""
    folder = f"/srv/secret/{name}" if name else "/"
    settings = Settings(
        model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", reranker=folder
    )
    with served(settings, waits=False) as client:
        told = client.get("/v1/settings")
    assert (told.status_code, "/srv" in told.text) == (200, False), told.text
    shown = {one["name"]: one["value"] for one in told.json()["data"]}
    assert shown["reranker"] == name


@pytest.mark.parametrize(("mode", "status"), [("keyword", 200), ("vector", 200), ("magic", 400)])
def test_a_question_chooses_how_passages_are_found(client: httpx2.Client, mode: str, status: int) -> None:
    made = client.post("/v1/conversations", json={"collection": "default"}).json()["id"]
    body = {
        "question": "Who designed the lighthouse?",
        "stream": False,
        "max_tokens": 2,
        "retrieval": mode,
        "chunks": 2,
    }
    found = client.post(f"/v1/conversations/{made}/messages", json=body)
    assert found.status_code == status, found.text
    if status == 200:
        assert len(found.json()["answer"]["citations"]) == 2
