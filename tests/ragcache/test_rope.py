"""RoPE put on, taken off and moved. Identity 3: K at layer 0, re-positioned, equals K computed at the new position."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ragcache.kvgen import KVGen
from ragcache.rope import Rope
from tests.tiny import ROPES, Tiny, assert_close, draw, garbage, make_chunks, make_config, make_system, stock, unrotated

CPU = torch.device("cpu")


def rope_of(kind: str) -> Rope:
    return Rope.from_config(make_config(rope=kind), CPU)


@pytest.mark.parametrize("start", [0, 23, 400])
def test_keys_moved_equal_keys_computed_there(every_tiny: Tiny, start: int) -> None:
    engine, (chunk,) = every_tiny.engine, make_chunks(60)
    kvgen = KVGen(engine)
    variant = kvgen.capture(kvgen.system(make_system()), [], chunk)
    buffer = garbage(engine, start + 60)
    engine.place(buffer, variant, start)
    expected = stock(every_tiny.model, (*draw(start, 9), *chunk.ids))
    assert_close(buffer.k[0, :, start:], expected.k[0, :, start:], 1e-5)
    assert_close(buffer.v[0, :, start:], expected.v[0, :, start:], 1e-5)


def test_placing_leaves_the_variant_as_it_is(tiny: Tiny) -> None:
    kvgen, (chunk,) = KVGen(tiny.engine), make_chunks(20)
    variant = kvgen.capture(kvgen.system(make_system()), [], chunk)
    k, v, buffer = variant.k.clone(), variant.v.clone(), tiny.engine.buffer(60)
    tiny.engine.place(buffer, variant, 30)
    first = buffer.k.clone()
    tiny.engine.place(buffer, variant, 30)
    assert torch.equal(variant.k, k)
    assert torch.equal(variant.v, v)
    assert torch.equal(buffer.k[:, :, 30:50], first[:, :, 30:50])


@pytest.mark.parametrize("kind", ROPES)
@given(positions=st.lists(st.integers(0, 511), min_size=1, max_size=20), seed=st.integers(0, 1000))
def test_taking_off_undoes_putting_on(kind: str, positions: list[int], seed: int) -> None:
    rope, places = rope_of(kind), torch.tensor(positions)
    x = torch.randn(2, len(positions), 16, generator=torch.Generator().manual_seed(seed))
    assert_close(unrotated(rope, rope.rotate(x, places), places), x, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ROPES)
def test_writing_to_a_buffer_equals_rotating(kind: str, dtype: torch.dtype) -> None:
    rope, span = rope_of(kind), slice(37, 57)
    x = torch.randn(3, 2, 20, 16, generator=torch.Generator().manual_seed(0)).to(dtype)
    out, before = torch.empty_like(x), x.clone()
    rope.rotate_into(out, x, span)
    assert_close(out, rope.rotate(x, span), 1e-6 if dtype == torch.float32 else 1e-2)
    assert torch.equal(x, before)


@pytest.mark.parametrize("kind", ROPES)
def test_the_angle_depends_on_the_distance_alone(kind: str) -> None:
    rope = rope_of(kind)
    q, k = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0))
    pairs = [(rope.rotate(q, slice(at + 9, at + 10)), rope.rotate(k, slice(at, at + 1))) for at in (0, 100, 490)]
    scores = [float((turned_q * turned_k).sum()) for turned_q, turned_k in pairs]
    assert max(scores) - min(scores) < 1e-3


def test_half_precision_is_turned_in_float32() -> None:
    rope, x = rope_of("default"), torch.randn(1, 1, 16).to(torch.bfloat16)
    expected = rope.rotate(x.float(), slice(500, 501)).to(torch.bfloat16)
    assert torch.equal(rope.rotate(x, slice(500, 501)), expected)


def test_the_kinds_under_test_are_really_different() -> None:
    tables = {kind: rope_of(kind) for kind in ROPES}
    scaling = {kind: float((rope.cos[9] ** 2 + rope.sin[9] ** 2).mean().sqrt()) for kind, rope in tables.items()}
    assert scaling["default"] == pytest.approx(1.0)
    assert scaling["llama3"] == pytest.approx(1.0)
    assert scaling["yarn"] > 1.1
    assert float((tables["default"].sin - tables["llama3"].sin).abs().max()) > 0.5
    assert float((tables["default"].sin - tables["yarn"].sin / scaling["yarn"]).abs().max()) > 0.5
