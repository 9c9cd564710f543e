"""Where an answer's sampling comes from: the settings before the model's makers before greed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.models import Models
from app.models.sampling import resolve_sampling
from app.settings import Settings, load_settings
from ragcache.errors import ConfigError, ModelError
from ragcache.sampling import Sampling


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """All other tests are greedy."""
    monkeypatch.delenv("RAGCACHE_TEMPERATURE")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The outside of a model folder."""
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    return tmp_path


def resolved(folder: Path, advice: object = None, **settings: Any) -> Sampling:
    if advice is not None:
        text = advice if isinstance(advice, str) else json.dumps(advice)
        (folder / "generation_config.json").write_text(text)
    return resolve_sampling(Settings(model=str(folder), cache_dir=folder / "cache", **settings))


def test_the_bundled_model_has_what_its_makers_recommend(tmp_path: Path) -> None:
    assert Models(Settings(cache_dir=tmp_path)).sampling == Sampling(0.2, 0.9)
    assert resolve_sampling(Settings(top_p=0.5, sampling_top_k=7, seed=3)) == Sampling(0.2, 0.5, 7, 3)
    assert resolve_sampling(Settings(temperature=0.7)) == Sampling(0.7, 0.9)
    assert resolve_sampling(Settings(temperature=0, top_p=0.5, seed=3)).temperature == 0
    assert list(tmp_path.iterdir()) == [], "no model is converted for it"


def test_a_bundled_model_that_there_is_not() -> None:
    with pytest.raises(ModelError, match="unknown bundled model 'bundled:nope'"):
        resolve_sampling(Settings(model="bundled:nope"))


@pytest.mark.parametrize(
    ("advice", "expected"),
    [
        (None, Sampling()),
        ({}, Sampling()),
        ({"eos_token_id": 2, "top_p": 0.9}, Sampling()),
        ({"do_sample": False, "temperature": 0.6}, Sampling()),
        ({"do_sample": None, "temperature": None}, Sampling()),
        ({"temperature": 0.6}, Sampling(0.6)),
        ({"do_sample": True}, Sampling(1.0)),
        ({"do_sample": True, "temperature": 1, "top_p": 1, "top_k": 0}, Sampling(1.0)),
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}, Sampling(0.6, 0.95, 20)),
        ({"do_sample": True, "temperature": 0.6, "top_p": None, "top_k": None}, Sampling(0.6)),
        ({"do_sample": False, "top_p": "what does not count"}, Sampling()),
    ],
)
def test_a_folder_says_it_in_its_file(folder: Path, advice: object, expected: Sampling) -> None:
    assert resolved(folder, advice) == expected


def test_settings_win_one_by_one(folder: Path) -> None:
    advice = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert resolved(folder, advice, top_p=0.5, seed=1) == Sampling(0.6, 0.5, 20, 1)
    assert resolved(folder, advice, temperature=2, sampling_top_k=0) == Sampling(2.0, 0.95, 0)
    assert resolved(folder, advice, temperature=0) == Sampling()
    assert resolved(folder, {"do_sample": False}, temperature=0.5) == Sampling(0.5)
    assert resolved(folder, {"do_sample": False}, top_p=0.5).temperature == 0


@pytest.mark.parametrize(
    ("advice", "told"),
    [
        ("{", "cannot be read: JSONDecodeError"),
        ("[" * 100_000, "cannot be read: RecursionError"),
        ('{"temperature": ' + "9" * 5000 + "}", "cannot be read: ValueError"),
        ("[]", "holds no settings by their names"),
        ({"do_sample": "yes"}, "says do_sample='yes': true or false"),
        ({"do_sample": 1}, "says do_sample=1: true or false"),
        ({"temperature": "hot"}, "says temperature='hot': a number"),
        ({"temperature": True}, "says temperature=True: a number"),
        ({"temperature": [0.5]}, r"says temperature=\[0.5\]: a number"),
        ({"temperature": -1}, "temperature is -1"),
        ('{"temperature": NaN}', "temperature is nan"),
        ('{"temperature": Infinity}', "temperature is inf"),
        ('{"temperature": 1e999}', "temperature is inf"),
        ('{"temperature": 1' + "0" * 400 + "}", "temperature is inf"),
        ({"do_sample": True, "top_p": 0}, "top_p is 0"),
        ({"do_sample": True, "top_p": 1.5}, "top_p is 1.5"),
        ({"do_sample": True, "top_k": 2.5}, "says top_k=2.5: a whole number"),
        ({"do_sample": True, "top_k": -1}, "top_k is -1"),
    ],
)
def test_what_is_malformed_is_one_clear_error(folder: Path, advice: object, told: str) -> None:
    with pytest.raises(ModelError, match=rf"^{folder}/generation_config.json.* {told}") as raised:
        resolved(folder, advice)
    assert ". Mend the file, or set RAGCACHE_" in str(raised.value)
    assert len(str(raised.value)) < 900
    # As it says.
    assert resolved(folder, None, temperature=0.5, top_p=1, sampling_top_k=0) == Sampling(0.5)


def test_a_file_that_is_none(folder: Path) -> None:
    (folder / "generation_config.json").mkdir()
    with pytest.raises(ModelError, match=r"generation_config.json cannot be read: IsADirectoryError"):
        resolved(folder)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "-0.1"),
        ("temperature", "2.1"),
        ("temperature", "nan"),
        ("temperature", "inf"),
        ("temperature", "hot"),
        ("top_p", "0"),
        ("top_p", "1.01"),
        ("sampling_top_k", "-1"),
        ("sampling_top_k", "1.5"),
        ("seed", "-1"),
        ("seed", str(2**63)),
    ],
)
def test_wrong_settings_are_told(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(f"RAGCACHE_{name.upper()}", value)
    with pytest.raises(ConfigError, match=f"^RAGCACHE_{name.upper()}='{value}' in the environment should be"):
        load_settings(None)
