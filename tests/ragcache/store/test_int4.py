"""What `int4` leaves of values, against a slow reference, and of a file's bytes."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragcache.store.codec import KVShape, open_codec
from ragcache.store.codec.int4 import GROUP
from ragcache.store.entry import entry_nbytes
from tests.ragcache.store.test_codec import Sizes, padded_rows, random_kv

K_STEPS, V_STEPS = 31, 15


def kept(k: torch.Tensor, v: torch.Tensor, codec: str = "int4") -> tuple[torch.Tensor, torch.Tensor]:
    return open_codec(codec).decode(padded_rows(open_codec(codec).encode(k, v)), KVShape.of(k))


def upward(x: torch.Tensor) -> torch.Tensor:
    """The least number of bfloat16 that is no less."""
    near = x.to(torch.bfloat16)
    return (near if near >= x else torch.nextafter(near, torch.tensor(torch.inf, dtype=torch.bfloat16))).float()


def quantised_by_hand(group: torch.Tensor, most: int) -> torch.Tensor:
    """What so many steps between numbers of bfloat16 leave of a group of values."""
    low = -upward(-group.min())
    step = upward((group.max() - low) / most)
    return torch.stack([low + step * min(round(float((x - low) / step)), most) if step else low for x in group])


@given(
    size=st.tuples(st.just(1), st.integers(1, 2), st.sampled_from([1, 5, 64, 70]), st.sampled_from([1, 3, 64, 70])),
    scale=st.sampled_from([1e-6, 1.0, 1e6]),
    seed=st.integers(0, 99),
)
@settings(max_examples=8, deadline=None)
def test_it_is_the_reference(size: Sizes, scale: float, seed: int) -> None:
    put = random_kv(size, torch.float32, scale, seed)
    for got, there, across, most in zip(kept(*put), put, (1, 0), (K_STEPS, V_STEPS), strict=True):
        for here, line in zip(lines(got, across), lines(there, across), strict=True):
            for part, group in zip(here.split(GROUP), line.split(GROUP), strict=True):
                torch.testing.assert_close(part, quantised_by_hand(group, most), rtol=1e-6, atol=1e-6 * scale)


def lines(x: torch.Tensor, across: int) -> list[torch.Tensor]:
    """Of the one layer's heads: each channel's tokens, or each token's channels."""
    return [line for head in x[0] for line in head.unbind(across)]


@pytest.mark.parametrize("value", [0.0, 3.25, -96.0, 2.0**-130])
def test_a_group_of_one_value_stays_as_it_is(value: float) -> None:
    k = torch.full((1, 2, 70, 70), value, dtype=torch.bfloat16)
    assert all(torch.equal(got, k) for got in kept(k, k))


@pytest.mark.parametrize("largest", [7e4, 1e30])
def test_values_beyond_float16_stay_finite(largest: float) -> None:
    k = torch.linspace(-largest, largest, 64 * 64).view(1, 1, 64, 64)
    for got in kept(k, k):
        assert float((got - k).abs().max()) <= largest / V_STEPS * 1.02


@pytest.mark.parametrize(("codec", "value"), [*product(["int8", "int4"], [torch.nan, torch.inf, -torch.inf])])
def test_what_is_no_number_spoils_its_group_alone(codec: str, value: float) -> None:
    k, v = random_kv((2, 2, 50, 8), torch.float32, 1.0, 0)
    clean_k, clean_v = kept(k, v, codec)
    k[1, 0, 7, 3] = v[1, 0, 7, 3] = value
    got_k, got_v = kept(k, v, codec)
    assert not got_k[1, 0, 7, 3].isfinite()
    assert not got_v[1, 0, 7, 3].isfinite()
    got_k[1, 0, :, 3], got_v[1, 0, 7] = clean_k[1, 0, :, 3], clean_v[1, 0, 7]
    assert torch.equal(got_k, clean_k)
    assert torch.equal(got_v, clean_v)


def test_it_is_written_where_it_belongs() -> None:
    k, v = random_kv((2, 2, 70, 5), torch.bfloat16, 1.0, 0)
    room = torch.zeros(2, 2, 4, 90, 5)
    rows = padded_rows(open_codec("int4").encode(k, v))
    places = room[0, :, 1:3, 10:80], room[1, :, 1:3, 10:80]
    open_codec("int4").decode_into(rows, KVShape.of(k.float()), *places)
    assert all(torch.equal(place, part) for place, part in zip(places, kept(k.float(), v.float()), strict=True))
    assert int(room.any(-1).sum()) == 2 * 2 * 2 * 70


@pytest.mark.parametrize("tokens", [160, 180, 200])
@pytest.mark.parametrize(("codec", "most"), [("int8", 0.54), ("int4", 0.33)])
def test_a_file_of_a_chunk_amid_a_document(codec: str, most: float, tokens: int) -> None:
    """All of it, of SmolLM2: header, profile and padding too."""
    shape = KVShape(30, 3, tokens, 64, torch.bfloat16)
    sizes = [entry_nbytes(shape, name, 122, (180, 180, 180), seen=6) for name in (codec, "bf16")]
    assert sizes[0] <= most * sizes[1]
