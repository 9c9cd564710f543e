from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import get_type_hints

import pytest
from packaging.requirements import Requirement

from app.cli import doctor
from app.cli.doctor import CHECKS
from app.cli.engine_check import STRATEGIES
from app.cli.findings import Finding, examine
from app.settings import Name, Settings, load_settings
from ragcache.errors import ModelError
from splitter import SPLITTERS


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings(None, cache_dir=tmp_path)


def only(findings: list[Finding]) -> Finding:
    (finding,) = findings
    return finding


def test_versions_of_python_and_of_all_that_is_required(settings: Settings) -> None:
    findings = {finding.name: finding for finding in doctor.check_versions(settings)}
    assert {"python", "torch", "transformers", "safetensors"} <= set(findings)
    assert findings["torch"].ok, findings["torch"]
    assert findings["torch"].detail.startswith("2.13.0")


def test_a_library_of_another_version_or_none_is_amiss() -> None:
    other = doctor._version_finding(Requirement("torch==1.0"))
    assert not other.ok
    assert "is installed, torch==1.0 is needed" in other.detail
    none = doctor._version_finding(Requirement("no-such-library>=1"))
    assert not none.ok
    assert none.detail == "not installed: pip install 'no-such-library>=1'"


def test_the_cache_folder_is_written_to(settings: Settings) -> None:
    assert only(doctor.check_cache_folder(settings)).ok
    assert list(settings.cache_dir.iterdir()) == [], "nothing is left behind"


def test_a_cache_folder_that_cannot_be_is_amiss(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = only(doctor.check_cache_folder(load_settings(None, cache_dir=tmp_path / "file" / "cache")))
    assert not finding.ok
    assert "RAGCACHE_CACHE_DIR" in finding.detail


def test_free_disk_is_that_of_the_cache_folder_even_before_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_settings(None, cache_dir=tmp_path / "not" / "yet")
    monkeypatch.setattr(doctor, "FREE_BYTES", 1)
    assert only(doctor.check_disk(settings)).ok
    monkeypatch.setattr(doctor, "FREE_BYTES", shutil.disk_usage(tmp_path).total + 1)
    assert not only(doctor.check_disk(settings)).ok


def test_when_kv_is_computed_and_how_much_is_told(tmp_path: Path) -> None:
    found = {
        kv: only(doctor.check_kv(load_settings(None, cache_dir=tmp_path, kv=kv, disk_bytes="5GiB"))).detail
        for kv in ("auto", "eager", "off")
    }
    assert found["auto"].startswith("auto: 5.0 GiB at most (RAGCACHE_DISK_BYTES)") and " 0 B stay" not in found["auto"]
    assert found["eager"].endswith("and 0 B stay so")
    assert found["off"] == "off: answers compute their prompts in full"


def test_a_damaged_conversion_is_found_by_its_checksum(smollm2: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models" / smollm2.name
    shutil.copytree(smollm2, folder, copy_function=os.symlink)
    settings = load_settings(None, cache_dir=tmp_path)
    assert only(doctor.check_model(settings)).ok
    config = folder / "config.json"
    damaged = config.read_bytes().replace(b"llama", b"lamas")
    config.unlink()
    config.write_bytes(damaged)
    finding = only(doctor.check_model(settings))
    assert not finding.ok
    assert "config.json does not have the checksum" in finding.detail


def test_the_bundled_embedder_is_found(settings: Settings) -> None:
    assert only(doctor.check_embedder(settings)).ok


@pytest.mark.parametrize("setting", STRATEGIES)
def test_a_name_that_no_registry_knows_is_amiss(tmp_path: Path, setting: str) -> None:
    findings = doctor.check_strategies(load_settings(None, cache_dir=tmp_path, **{setting: "nope"}))
    assert {finding.name: finding.ok for finding in findings} == {name: name != setting for name in STRATEGIES}
    wrong = only([finding for finding in findings if not finding.ok])
    known = "(unknown .*'nope': choose from|no model 'nope': give)"
    assert re.fullmatch(rf"{known} \w.*; set RAGCACHE_{setting.upper()}", wrong.detail)
    assert wrong.name == setting


def test_every_setting_that_is_a_name_is_looked_at() -> None:
    """The models and the server have checks of their own, and a collection may have any name."""
    kinds = get_type_hints(Settings, include_extras=True)
    named = {setting for setting, kind in kinds.items() if kind in (Name, Name | None)}
    assert named - {"model", "embedder", "collection", "serve_host", "ui_host"} == set(STRATEGIES)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"splitter": "semantic:granularity=verse"}, "verse"),
        ({"splitter": "nosuch.package.Parser"}, "cannot import the splitter nosuch.package.Parser"),
        ({"splitter": "llama_index.core.node_parser.SentenceSplitter:nope=1"}, "has no setting 'nope'"),
        ({"reranker": "/no/such"}, "no model '/no/such'"),
        ({"reranker": "bundled:minilm"}, "no reranker is bundled"),
    ],
)
def test_what_an_ingest_or_a_question_would_fail_at_is_amiss(
    tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    wrong = only(
        [one for one in doctor.check_strategies(load_settings(None, cache_dir=tmp_path, **settings)) if not one.ok]
    )
    assert told in wrong.detail


def test_any_splitter_of_ours_and_a_parser_of_llama_index_are_sound(tmp_path: Path) -> None:
    for splitter in (*SPLITTERS, "llama_index.core.node_parser.SemanticSplitterNodeParser:buffer_size=2"):
        findings = doctor.check_strategies(load_settings(None, cache_dir=tmp_path, splitter=splitter))
        assert all(finding.ok for finding in findings), splitter
        assert ("reranker", "none") in {(finding.name, finding.detail) for finding in findings}


def test_a_linker_with_a_wrong_setting_is_amiss(tmp_path: Path) -> None:
    findings = doctor.check_strategies(load_settings(None, cache_dir=tmp_path, linker="query:nope=1"))
    wrong = only([finding for finding in findings if not finding.ok])
    assert (wrong.name, "has no setting 'nope'" in wrong.detail) == ("linker", True)


def test_an_error_becomes_a_finding_and_the_rest_is_still_checked(settings: Settings) -> None:
    def check_the_worst(settings: Settings) -> list[Finding]:
        raise ModelError("no such thing")

    findings = examine(settings, [check_the_worst, doctor.check_cache_folder])
    assert findings[0] == Finding("the worst", False, "no such thing")
    assert findings[1].ok


def test_every_check_is_in_the_list() -> None:
    written = {name for name in vars(doctor) if name.startswith("check_")}
    assert {check.__name__ for check in CHECKS} == written
