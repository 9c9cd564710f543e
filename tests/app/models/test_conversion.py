from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.models.conversion import MANIFEST, convert_once, converted_folder, find_flaw
from app.models.folders import bundled_gguf, resolve_model
from ragcache.errors import ModelError, StoreError

RESOLVE = (
    "import sys, pathlib, app.models.folders as m; print(m.resolve_model('bundled:smollm2', pathlib.Path(sys.argv[1])))"
)


@pytest.fixture
def conversion(smollm2: Path, tmp_path: Path) -> Path:
    """A cache folder of its own with the sound conversion in it; its files are links, so it costs nothing. Not hard
    ones: as these come and go, the model that others read meanwhile counts as changed.
    """
    folder = tmp_path / "models" / smollm2.name
    shutil.copytree(smollm2, folder, copy_function=os.symlink)
    return folder


@pytest.mark.slow
def test_two_processes_that_start_at_once_share_one_conversion(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", RESOLVE, str(tmp_path)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    ended = [process.communicate(timeout=200) for process in started]
    assert [process.returncode for process in started] == [0, 0], ended
    assert [error for _, error in ended] == ["", ""], "a conversion should be quiet"
    (folder,) = {Path(out.strip()) for out, _ in ended}
    assert find_flaw(folder, full=True) is None
    assert {path.name for path in folder.parent.iterdir()} <= {folder.name, f"{folder.name}.lock"}


def test_the_converted_model_keeps_what_chat_needs(smollm2: Path) -> None:
    from transformers import AutoConfig, AutoTokenizer, GenerationConfig

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert tokenizer.eos_token_id == AutoConfig.from_pretrained(smollm2).eos_token_id == end
    assert GenerationConfig.from_pretrained(smollm2).eos_token_id == end
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")


def test_the_converted_weights_are_plain_bfloat16(smollm2: Path) -> None:
    import torch
    from safetensors import safe_open

    assert "quantization_config" not in json.loads((smollm2 / "config.json").read_text())
    with safe_open(smollm2 / "model.safetensors", "pt") as weights:
        names = list(weights.keys())
        assert {weights.get_slice(name).get_dtype() for name in names} == {"BF16"}
        embedding = weights.get_tensor("model.embed_tokens.weight")
    assert embedding.shape == (49152, 576)
    assert bool(torch.isfinite(embedding).all())


def test_a_sound_conversion_is_not_written_again(conversion: Path, tmp_path: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in conversion.iterdir()}
    assert resolve_model("bundled:smollm2", tmp_path) == conversion
    assert {path: path.stat().st_mtime_ns for path in conversion.iterdir()} == before
    assert not conversion.with_name(f"{conversion.name}.lock").exists(), "no lock where there is nothing to do"


def test_flaws_are_named(conversion: Path) -> None:
    assert find_flaw(conversion, full=True) is None
    config = conversion / "config.json"
    sound = config.read_bytes()

    def put(content: bytes) -> None:
        config.unlink()  # a link to the conversion that other tests use
        config.write_bytes(content)

    put(sound.replace(b"bfloat16", b"bfloat61"))
    assert find_flaw(conversion) is None, "of the same size: left to the full check"
    assert find_flaw(conversion, full=True) == "config.json does not have the checksum of the manifest"
    put(sound[:-1])
    assert find_flaw(conversion) == f"config.json has {len(sound) - 1} bytes, the manifest says {len(sound)}"
    config.unlink()
    assert find_flaw(conversion) == "config.json is missing"


@pytest.mark.parametrize(
    ("manifest", "flaw"),
    [
        ("{", "manifest.json cannot be read"),
        ("[]", "manifest.json cannot be read"),
        ('{"format": 1, "files": {"config.json": {"size": 1}}}', "manifest.json cannot be read"),
        ('{"format": 0, "files": {}}', "manifest.json has format 0"),
        (None, "manifest.json is missing"),
    ],
)
def test_flaws_of_the_manifest_are_named(manifest: str | None, flaw: str, tmp_path: Path) -> None:
    if manifest is not None:
        (tmp_path / MANIFEST).write_text(manifest)
    found = find_flaw(tmp_path)
    assert found is not None
    assert found.startswith(flaw)


def test_nothing_is_not_converted_yet(tmp_path: Path) -> None:
    assert find_flaw(tmp_path / "none") == "not converted yet"


@pytest.mark.slow
def test_a_flawed_conversion_is_made_again_and_said(
    conversion: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (conversion / "tokenizer.json").unlink()
    leftover = conversion.with_name(f".{conversion.name}.partial")
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"of a process that died")
    with caplog.at_level(logging.WARNING, logger="app"):
        assert resolve_model("bundled:smollm2", tmp_path) == conversion
    assert "tokenizer.json is missing): converting again" in caplog.text
    assert find_flaw(conversion, full=True) is None
    assert {path.name for path in conversion.parent.iterdir()} <= {conversion.name, f"{conversion.name}.lock"}


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 100, 100_000, 60_000_000])
def test_a_truncated_source_is_one_line_and_leaves_nothing(size: int, tmp_path: Path) -> None:
    gguf = tmp_path / "cut.gguf"
    with bundled_gguf("bundled:smollm2").open("rb") as whole:
        gguf.write_bytes(whole.read(size))
    folder = converted_folder(gguf, "cut", tmp_path)
    with pytest.raises(ModelError, match=r"cannot read .*cut\.gguf") as told:
        convert_once(gguf, folder)
    assert "\n" not in str(told.value)
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == []


def test_another_source_gets_another_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    one.write_bytes(b"1")
    other.write_bytes(b"2")
    assert converted_folder(one, "m", tmp_path) != converted_folder(other, "m", tmp_path)


def test_a_cache_folder_that_is_a_file_is_a_store_error(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(StoreError, match=r"RAGCACHE_CACHE_DIR"):
        resolve_model("bundled:smollm2", blocked)


def test_transformers_is_as_loud_after_a_conversion_as_before(tmp_path: Path) -> None:
    from transformers.utils import logging as talk

    gguf = tmp_path / "empty.gguf"
    gguf.touch()
    talk.set_verbosity_info()
    try:
        with pytest.raises(ModelError):
            convert_once(gguf, tmp_path / "models" / "empty")
        assert talk.get_verbosity() == logging.INFO
        assert talk.is_progress_bar_enabled()
    finally:
        talk.set_verbosity_warning()
