from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ragcache.engine.selfcheck import Check, self_check
from ragcache.engine.torch.engine import TorchEngine
from ragcache.rope import Rope
from tests.tiny import Tiny, make_config, make_model, make_tiny, to_dtype


def test_a_sound_engine_passes(every_tiny: Tiny) -> None:
    checks = self_check(every_tiny.engine)
    assert len(checks) == 3
    assert all(check.ok for check in checks), checks
    assert max(check.error for check in checks) < 1e-4


def test_the_tolerance_is_that_of_the_number_format() -> None:
    model = to_dtype(make_model(make_config(initializer_range=0.05)), torch.bfloat16)
    checks = self_check(TorchEngine.from_model(model))
    assert all(check.tolerance == 6e-2 for check in checks)
    assert checks[2].ok, checks[2]


@pytest.mark.slow
def test_a_context_shorter_than_the_check_is_no_obstacle() -> None:
    assert all(check.ok for check in self_check(make_tiny(max_position_embeddings=64).engine))


def other_frequencies(rope: Rope) -> Rope:
    table = torch.arange(len(rope.cos))[:, None] * torch.linspace(1.0, 0.1, rope.cos.shape[1])
    return replace(rope, cos=table.cos(), sin=table.sin())


def other_way(rope: Rope) -> Rope:
    return replace(rope, sin=-rope.sin)


def other_scaling(rope: Rope) -> Rope:
    return replace(rope, cos=rope.cos * 1.3, sin=rope.sin * 1.3)


@pytest.mark.parametrize("broken", [other_frequencies, other_way, other_scaling])
def test_a_wrong_rope_is_found(broken: Callable[[Rope], Rope]) -> None:
    engine = make_tiny().engine
    engine.decoder = replace(engine.decoder, rope=broken(engine.decoder.rope))
    checks = self_check(engine)
    assert not checks[2].ok
    assert all(not check.ok for check in checks), checks


def test_a_wrong_layer_is_found_where_the_rope_is_right() -> None:
    engine = make_tiny().engine
    engine.decoder = replace(engine.decoder, scale=engine.decoder.scale * 1.5)
    spans, context, moved = self_check(engine)
    assert not spans.ok
    assert not context.ok
    assert moved.ok


def test_an_error_that_is_no_number_is_no_pass() -> None:
    assert not Check("x", float("nan"), 1.0).ok
