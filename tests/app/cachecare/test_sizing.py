from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cachecare.sizing import KNOWN, ModelSize, known_sizes, rows, sizes_of
from app.ingestion.estimate import bytes_per_token
from app.settings import Settings
from ragcache.errors import ConfigError
from ragcache.store.codec import CODECS
from ragcache.types import KVForm
from tests.app.cli.inside import make_run

GIB = 1 << 30


def test_the_bundled_model_is_as_the_table_has_it(smollm2: Path) -> None:
    (own,) = sizes_of([smollm2])
    assert own.form == KNOWN["SmolLM2 135M"]
    for codec in CODECS:
        settings = Settings(model=str(smollm2), codec=codec, dtype="bfloat16")
        assert own.nbytes(codec) == bytes_per_token(settings) > 0


def test_the_parts_of_a_token_and_little_more() -> None:
    """K and V of 16 bits, and what a file has beside them; of codecs that round, also the floats that scale."""
    for one in known_sizes():
        bare = 2 * 2 * one.form.layers * one.form.kv_heads * one.form.head_dim
        assert bare <= one.nbytes("bf16") < 1.01 * bare, one.name
        assert one.nbytes("int8") < 0.54 * bare and one.nbytes("int4") < 0.33 * bare, one.name


def test_what_fits_takes_no_more_than_the_budget() -> None:
    one = ModelSize("x", KVForm(30, 3, 64))
    for codec in ("bf16", "int8", "int4"):
        tokens = one.fitting(GIB, codec)
        assert tokens * one.nbytes(codec) <= GIB < (tokens + 1) * one.nbytes(codec)


def test_a_config_alone_is_enough(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 4, "num_attention_heads": 8, "hidden_size": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (told,) = rows(sizes_of([tmp_path]), GIB)
    assert (told["model"], told["layers"], told["kv_heads"], told["head_dim"]) == (tmp_path.name, 4, 8, 64)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"num_hidden_layers": "many", "num_attention_heads": 1}'])
def test_what_a_config_does_not_say(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ConfigError, match="does not say plainly"):
        sizes_of([tmp_path])
    with pytest.raises(ConfigError, match="cannot be read"):
        sizes_of([tmp_path / "nowhere"])


def test_on_the_command_line(
    smollm2: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    run = make_run(capsys, monkeypatch)
    told = run("cache", "sizing", str(smollm2), "--budget", "4 GiB", "--json").json
    assert told == {"budget": 4 * GIB, "models": rows(sizes_of([smollm2]), 4 * GIB)}
    shown = run("cache", "sizing").out.splitlines()
    assert len(shown) == len(KNOWN) + 3
    assert run("cache", "sizing", "--budget", "much").code == 2
