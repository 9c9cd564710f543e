from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.library import Library
from app.library.identities import (
    Identity,
    current_identity,
    known_identities,
    recorded_identities,
    remember_identity,
    remembered_identity,
)
from app.library.kv import families_of, has_kv, with_kv
from app.models import Models
from app.models.loading import load_store
from app.settings import Settings
from ragcache.engine import fingerprint
from ragcache.engine.torch.engine import TorchEngine
from ragcache.store.folder import CacheFolder
from tests.app.library.shelves import fill, make_settings, reopened
from tests.tiny import Tiny


def test_the_engine_is_named_without_loading_it(library: Library, models: Models, settings: Settings) -> None:
    loaded = Identity(models.language.engine.spec.fingerprint, models.template.system().hash)
    assert current_identity(models) == loaded
    fresh = Models(settings)
    assert current_identity(fresh) == loaded
    assert fresh.loaded is None


def test_the_weights_are_read_once(library: Library, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gigabytes, for commands that only look."""
    monkeypatch.setattr(fingerprint, "SETTLED_NS", -(10**18))  # as if the files had been written long ago
    first = current_identity(Models(settings))

    def read(paths: object) -> str:
        raise AssertionError(f"{paths} are read again")

    monkeypatch.setattr(fingerprint, "_digest", read)
    assert current_identity(Models(settings)) == first


@pytest.mark.slow
def test_of_every_family(every_tiny: Tiny, tiny_folder: Path, tmp_path: Path) -> None:
    """The configuration in a file and that of a loaded model say the same of each RoPE."""
    every_tiny.model.save_pretrained(tmp_path / "model")
    for file in tiny_folder.glob("tokenizer*"):
        (tmp_path / "model" / file.name).write_bytes(file.read_bytes())
    settings = make_settings(tmp_path / "model", tmp_path)
    from_file = current_identity(Models(settings)).fingerprint
    engine = TorchEngine.from_folder(tmp_path / "model", torch.float32, torch.device("cpu"))
    assert from_file == engine.spec.fingerprint


def test_without_the_model_those_that_are_written_down(
    library: Library, models: Models, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fill(library, models, kv=True)
    identity = current_identity(models)
    assert recorded_identities(library) == {identity}
    with caplog.at_level(logging.WARNING):
        assert known_identities(library, Models(make_settings(tmp_path / "gone", tmp_path))) == {identity}
    assert "is not looked for: no model" in caplog.text


def test_a_model_that_was_replaced_after_it_was_loaded_is_not_taken_for_it(tiny_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_folder, folder)
    settings = make_settings(folder, tmp_path)
    with Models(settings) as models:
        assert models.language
        weights = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(weights[:-4] + bytes(4))
        remember_identity(models)
        assert remembered_identity(Models(settings)) is None
        assert current_identity(Models(settings)).fingerprint != models.language.engine.spec.fingerprint
    with Models(settings) as models:
        assert models.language
        remember_identity(models)
        assert remembered_identity(Models(settings)) == current_identity(models)


def test_a_model_is_remembered_by_its_own_settings(models: Models, settings: Settings, tmp_path: Path) -> None:
    """Whatever those of whoever shares it say: nothing is looked for by them, and nothing raised."""
    other = settings.model_copy(update={"model": "no/model", "dtype": "bfloat16", "system_prompt": "Answer."})
    shared = Models(other, models.language)
    remember_identity(shared)
    own = models.language.settings
    assert remembered_identity(Models(own)) == current_identity(models)
    assert remembered_identity(Models(own.model_copy(update={"dtype": "bfloat16"}))) is None
    remember_identity(Models(other, replace(models.language, files=None)))


@pytest.mark.parametrize("model", ["~no-such-user/x", "/no/such/folder", "bundled:none"])
def test_what_is_no_model_was_never_found_out(library: Library, models: Models, model: str) -> None:
    assert remembered_identity(reopened(library, models, model=model)[1]) is None


def test_another_system_prompt_is_another_identity(library: Library, settings: Settings) -> None:
    """Told without a tokenizer the second time."""
    told = {}
    for prompt in ("Answer.", "Answer briefly.", "Answer."):
        fresh, known = Models(settings.model_copy(update={"system_prompt": prompt})), prompt in told
        identity = told.setdefault(prompt, current_identity(fresh))
        assert current_identity(fresh) == identity
        assert (Models.template.peek(fresh) is None) is known
        assert fresh.template.system().hash == identity.system
    assert len({identity.system for identity in told.values()}) == 2


@pytest.mark.parametrize("border", ["", "collection-a"])
def test_which_chunks_have_kv_is_looked_up_for_those_alone(
    library: Library, models: Models, monkeypatch: pytest.MonkeyPatch, border: str
) -> None:
    """The cache of a machine may have a hundred thousand entries."""
    fill(library, models, kv=True)
    hashes = library.catalog.chunks.hashes()
    wanted = dict(zip(families_of(current_identity(models), hashes, border), hashes, strict=True))
    folder = CacheFolder(models.settings.kv_folder)
    found = {wanted[item.family] for item in folder.items() if item.family in wanted}
    assert bool(found) is not bool(border)

    def read(*_: object) -> None:
        raise AssertionError("all entries are read")

    monkeypatch.setattr(CacheFolder, "items", read)
    assert with_kv(models, [*hashes, "0" * 64], border) == found


def test_the_folder_is_that_of_the_store(settings: Settings) -> None:
    assert not has_kv(settings)
    load_store(settings)
    assert settings.kv_folder.is_dir()
    assert not has_kv(settings), "an empty store holds nothing"
