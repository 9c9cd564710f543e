"""What is chosen for questions is what the server takes; what is told of costs is counted or measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from app import Settings
from app.server.questions import AskedQuestion
from app.server.shown_settings import BUDGETS, CACHE, MODELS, PLAIN, SAMPLING, STRATEGIES
from ragcache.linking import LINKERS
from tests.app.server.serving import served
from tests.tiny_folder import write_tiny_folder
from ui import access
from ui.settings import AS_SET, CHOSEN, RETRIEVAL, SENTENCES, cost, listed, pace, written
from ui.settings import LINKERS as OFFERED


def job(**changes: Any) -> dict[str, Any]:
    progress = {"tokens": 500, "kv_variants": 4}
    return {"state": "done", "progress": progress, "started": 10, "finished": 20} | changes


def test_what_is_offered_is_taken() -> None:
    assert set(OFFERED) - {AS_SET} <= set(LINKERS)
    for name in set(RETRIEVAL) - {AS_SET}:
        assert AskedQuestion(question="Who?", retrieval=name).retrieval == name


def test_each_setting_has_a_sentence() -> None:
    assert set(SENTENCES) == {*MODELS, *STRATEGIES, *PLAIN, *CACHE, *SAMPLING, *BUDGETS}


def test_values_are_texts() -> None:
    html = listed([{"name": "model", "value": "<b>m</b>", "variable": "RAGCACHE_MODEL"}, {"name": "new", "value": 1}])
    assert "&lt;b&gt;m&lt;/b&gt;" in html and "RAGCACHE_MODEL" in html and "new" not in html


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [("ram_bytes", 4 << 30, "4.0 GiB"), ("seed", None, "none"), ("top_k", 5, "5"), ("temperature", 0.2, "0.2")],
)
def test_values_as_people_read_them(name: str, value: Any, told: str) -> None:
    assert written({"name": name, "value": value}) == told


def test_the_cost_of_a_new_capture() -> None:
    shelf = {"name": "shelf", "documents": 2, "tokens": 3000}
    shares = {"shelf": {"bytes": 86 << 20}}
    told = cost([shelf], shares, 50.0)
    assert "3,000 tokens of 2 documents" in told and "about 60 s" in told and "86.0 MiB of KV" in told
    assert "about" not in cost([shelf], shares, None)  # never a time that was not measured
    assert "costs nothing" in cost([], {}, 50.0)


def test_the_pace_is_that_of_files_whose_kv_was_computed() -> None:
    others = [job(state="failed"), job(progress={"tokens": 900}), job(started=None), job(finished=10)]
    assert pace([job(), job(finished=30), *others]) == pytest.approx(1000 / 30)
    assert pace(others) is None


def script() -> None:
    from ui.settings import show

    show(None)


def test_what_is_chosen_stays_until_it_is_let_go(
    smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tiny").mkdir()
    tiny = write_tiny_folder(tmp_path / "tiny", smollm2)
    settings = Settings(model=str(tiny), data_dir=tmp_path / "data", cache_dir=tmp_path / "cache")
    with served(settings, waits=False) as client:
        monkeypatch.setenv("RAGCACHE_SERVER", str(client.base_url))
        access.server.cache_clear()
        page = AppTest.from_function(script, default_timeout=60.0).run()
        assert not page.exception
        assert page.session_state[CHOSEN] == {}
        page.radio[0].set_value("full").run()
        page.number_input[0].set_value(8).run()
        assert page.session_state[CHOSEN] == {"linker": "full", "chunks": 8}
        page.radio[0].set_value("fast").run()  # a second time: the widget is still the same one
        page.radio[0].set_value("full").run()
        assert page.session_state[CHOSEN] == {"linker": "full", "chunks": 8}
        page.radio[0].set_value(AS_SET).run()
        assert page.session_state[CHOSEN] == {"chunks": 8}
    access.server.cache_clear()
