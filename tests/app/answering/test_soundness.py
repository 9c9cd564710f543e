"""Models on which linking does not work are found before they answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from app import RagPipeline
from app.answering import soundness
from app.answering.quality import LIMIT
from app.answering.soundness import Soundness, known_soundness, measured_soundness
from app.models.chat_template import load_tokenizer
from app.models.loading import TorchModel, load_torch_model
from app.settings import Settings, load_settings
from ragcache.linking import make_linker
from ragcache.linking.baselines import Full
from tests.app.filling import fill
from tests.tiny_folder import write_tiny_folder

AUTO = make_linker("auto")
SOUND = {
    "one layer": {"num_hidden_layers": 1},
    "six layers": {"num_hidden_layers": 6},
    "each head its own": {"num_attention_heads": 4, "num_key_value_heads": 4},
    "one head for all": {"num_attention_heads": 4, "num_key_value_heads": 1},
    "broad": {"hidden_size": 128, "intermediate_size": 256},
    "narrow heads": {"head_dim": 8, "num_attention_heads": 4, "num_key_value_heads": 2},
    "far positions": {"rope_theta": 1_000_000},
}


def model_of(folder: Path, cache: Path, dtype: str = "float32") -> TorchModel:
    return load_torch_model(load_settings(None, model=str(folder), cache_dir=cache, dtype=dtype, device="cpu"))


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine is busy with other tests, and what a start would not wait for is measured all the same."""
    monkeypatch.setattr(soundness, "MOST_S", 900.0)


@pytest.mark.parametrize("name", SOUND)
def test_sound_ones_raise_no_alarm(name: str, smollm2: Path, tmp_path: Path) -> None:
    model = model_of(write_tiny_folder(tmp_path / "model", smollm2, spread=0.05, **SOUND[name]), tmp_path)
    found = measured_soundness(model, AUTO)
    assert found is not None and found.sound, found
    assert known_soundness(model, AUTO) == found, "it is not measured again"
    assert known_soundness(model, make_linker("naive")) is None


def test_the_bundled_one_is_sound(smollm2: Path, tmp_path: Path) -> None:
    found = measured_soundness(model_of(smollm2, tmp_path), AUTO)
    assert found is not None and found.kl < LIMIT / 3


def chaotic(folder: Path, smollm2: Path) -> Path:
    """What each token means hangs on all before it."""
    return changed(folder, smollm2, 0.3)


def deep(folder: Path, smollm2: Path) -> Path:
    """By little in each of many layers."""
    return changed(folder, smollm2, 0.2, layers=16)


def sharp(folder: Path, smollm2: Path) -> Path:
    """It looks at few tokens, and which ones hangs on what is in between."""
    return changed(folder, smollm2, 0.1, sharpness=8.0)


def changed(folder: Path, smollm2: Path, spread: float, layers: int = 4, sharpness: float = 1.0) -> Path:
    tokenizer = load_tokenizer(smollm2)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_attention_heads=4,
        num_hidden_layers=layers, num_key_value_heads=2, max_position_embeddings=2048, initializer_range=spread,
        tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "q_proj" in name or "k_proj" in name:
                weight.mul_(sharpness)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("make", [chaotic, deep, sharp])
def test_those_on_which_linking_fails_are_served_without(
    make: object, smollm2: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make(tmp_path / "model", smollm2)  # type: ignore[operator]
    settings = Settings(
        model=str(folder), data_dir=tmp_path / "data", cache_dir=tmp_path, max_tokens=4, link_when="always", gate=0.02
    )
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md", "lighthouse.md", "meerkats.md"))
        pipeline.load()
        assert pipeline.gate.soundness is not None and not pipeline.gate.soundness.sound
        assert "answers are computed without the cache" in caplog.text
        assert pipeline.models.cache.linker == Full()
        answer = pipeline.ask("Who designed the lighthouse?")
        assert answer.report.reused == answer.report.repaired == 0 and answer.report.computed > 0
        assert any("when this model was checked" in note for note in answer.notes)
        assert pipeline.ask("Who designed the lighthouse?", linker="auto").report.reused, "who asks for it gets it"
    with RagPipeline(settings) as again:
        assert again.ask("Who designed the lighthouse?").report.reused == 0


def test_without_a_gate_nothing_is_checked(tiny_folder: Path, tmp_path: Path) -> None:
    settings = Settings(model=str(tiny_folder), data_dir=tmp_path / "data", cache_dir=tmp_path, gate=0.0)
    with RagPipeline(settings) as pipeline:
        fill(pipeline, ("bakery.md",))
        pipeline.load()
        assert pipeline.gate.soundness is None


def test_a_context_that_is_too_short_for_the_samples_tells_nothing(smollm2: Path, tmp_path: Path) -> None:
    folder = write_tiny_folder(tmp_path / "model", smollm2, max_position_embeddings=256)
    assert measured_soundness(model_of(folder, tmp_path), AUTO) is None


def test_a_start_does_not_wait_for_it_for_long(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(soundness, "MOST_S", 0.0)
    model = model_of(tiny_folder, tmp_path)
    assert measured_soundness(model, AUTO) == Soundness(None)
    assert known_soundness(model, AUTO) == Soundness(None), "nor does the next one"


def test_a_check_that_breaks_keeps_no_model_from_serving(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("CUDA out of memory")

    monkeypatch.setattr(soundness, "_measured", broken)
    model = model_of(tiny_folder, tmp_path)
    assert measured_soundness(model, AUTO) is None and known_soundness(model, AUTO) is None


def test_a_verdict_is_by_its_limit() -> None:
    assert (
        Soundness(None).sound
        and Soundness(LIMIT).sound
        and not Soundness(LIMIT * 1.01).sound
        and not Soundness(float("nan")).sound
    )
