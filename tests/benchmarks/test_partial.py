from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.quality.records import Partial, settings_key
from ragcache.errors import ConfigError


def test_results_are_picked_up_again(tmp_path: Path) -> None:
    out = tmp_path / "new" / "out.json"
    Partial(out, "key", resume=False).append("one", {"kl": 0.1})
    again = Partial(out, "key", resume=True)
    again.append("two", {"kl": 0.2})
    assert Partial(out, "key", resume=True).records == {"one": {"kl": 0.1}, "two": {"kl": 0.2}}


def test_a_torn_line_is_dropped_and_not_built_upon(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    partial = Partial(out, "key", resume=False)
    partial.append("one", {"kl": 0.1})
    partial.append("two", {"kl": 0.2})
    torn = partial.path.read_bytes()[:-7]
    partial.path.write_bytes(torn)
    again = Partial(out, "key", resume=True)
    assert again.records == {"one": {"kl": 0.1}}
    again.append("three", {"kl": 0.3})
    assert set(Partial(out, "key", resume=True).records) == {"one", "three"}


def test_results_of_other_settings_are_dropped(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    Partial(out, "key", resume=False).append("one", {"kl": 0.1})
    assert Partial(out, "other", resume=True).records == {}


def test_without_resume_it_starts_anew(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    Partial(out, "key", resume=False).append("one", {})
    Partial(out, "key", resume=False)
    assert Partial(out, "key", resume=True).records == {}


def test_the_key_is_of_all_settings() -> None:
    assert settings_key({"a": 1, "b": {"c": 2}}) == settings_key({"b": {"c": 2}, "a": 1})
    assert settings_key({"a": 1}) != settings_key({"a": 2})


def test_a_file_that_something_else_wrote_is_told(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    out.with_name("out.json.partial.jsonl").write_text("not ours\n")
    with pytest.raises(ConfigError, match="run without --resume"):
        Partial(out, "key", resume=True)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="name another place with --json"):
        Partial(tmp_path / "file" / "out.json", "key", resume=False)
