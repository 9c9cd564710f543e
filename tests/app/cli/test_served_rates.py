"""A folder is sent whole by a key that may ask a few times a minute."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

import pytest

from app import Settings
from app.library.catalog import open_catalog
from app.library.catalog.serving_records import KeyLimits
from app.server.limits import KeyRates
from tests.app.cli.inside import make_run
from tests.app.client.hastened import hastened
from tests.app.server.serving import served

PER_MINUTE = 4
FILES = 5


def test_an_ingest_waits_until_it_may_ask_again(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept = hastened(monkeypatch)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("app.server.gate.KeyRates", lambda: KeyRates(lambda: monotonic() + sum(slept)))
    (notes := tmp_path / "notes").mkdir()
    for number in range(FILES):
        (notes / f"{number}.txt").write_text(f"The light is shown {number} times an hour.")
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache", kv="off")
    with open_catalog(settings) as catalog:
        _, admin = catalog.keys.create("admin", ["admin"])
        _, sender = catalog.keys.create("sender", ["ingest", "read"], limits=KeyLimits(requests_per_minute=PER_MINUTE))
    with served(settings, {"Authorization": f"Bearer {admin}"}) as client:
        monkeypatch.setenv("RAGCACHE_API_KEY", sender)
        run = make_run(capsys, monkeypatch)
        ran = run("ingest", str(notes), "-c", "shelf", "--server", str(client.base_url))
        assert (ran.code, ran.out[:8]) == (0, f"added {FILES},"), ran.err
        assert "note: http://127.0.0.1:" in ran.err
        assert ran.err.count("\n") == 1
        listed = client.get("/v1/collections/shelf/documents").json()["data"]
        assert len(listed) == FILES
    assert sum(slept) >= (FILES - PER_MINUTE) * 60 / PER_MINUTE
