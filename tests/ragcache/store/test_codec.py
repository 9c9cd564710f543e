"""The codecs against slow, obvious references."""

from __future__ import annotations

import struct

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragcache.errors import ConfigError
from ragcache.store.codec import CODECS, KVShape, open_codec
from tests.codecs import CODEC_ROWS

Sizes = tuple[int, int, int, int]
sizes = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9), st.integers(1, 9))
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])
scales = st.sampled_from([1e-6, 1.0, 300.0])


def random_kv(size: Sizes, dtype: torch.dtype, scale: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    k, v = (torch.randn(size, generator=generator) * scale for _ in range(2))
    return (k + 10 * scale * torch.randn(size[1], 1, size[3], generator=generator)).to(dtype), v.to(dtype)


def padded_rows(rows: torch.Tensor) -> torch.Tensor:
    """As a file gives them: the stride a multiple of 64."""
    wide = torch.zeros(rows.shape[0], -(-rows.shape[1] // 64) * 64, dtype=torch.uint8)
    wide[:, : rows.shape[1]] = rows
    return wide[:, : rows.shape[1]]


def quantised_by_hand(group: list[float]) -> list[float]:
    """What 8 bits leave of a group of values, whose low and step are of bfloat16."""
    low = -of_bfloat16(-min(group))
    step = of_bfloat16((max(group) - low) / 255)
    return [low + step * min(round((x - low) / step), 255) if step else low for x in group]


def of_bfloat16(x: float) -> float:
    """The lowest number of bfloat16 that is no lower: it has the first half of the bits of a float32."""
    (bits,) = struct.unpack("<I", struct.pack("<f", x))
    (cut,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))
    return x if cut == x else cut if x < 0 else struct.unpack("<f", struct.pack("<I", (bits & 0xFFFF0000) + 0x10000))[0]


@pytest.mark.parametrize("name", CODECS)
@given(size=sizes, dtype=dtypes, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_layers_can_be_decoded_alone(name: str, size: Sizes, dtype: torch.dtype, seed: int) -> None:
    codec, (k, v) = open_codec(name), random_kv(size, dtype, 1.0, seed)
    shape = KVShape.of(k)
    rows = padded_rows(codec.encode(k, v))
    assert rows.shape == (size[0], codec.layer_nbytes(shape))
    all_k, all_v = codec.decode(rows, shape)
    assert all_k.shape == all_v.shape == size
    assert all_k.dtype == all_v.dtype == dtype
    for layer in range(size[0]):
        one_k, one_v = codec.decode(rows[layer : layer + 1], shape.with_layers(1))
        assert torch.equal(one_k[0], all_k[layer])
        assert torch.equal(one_v[0], all_v[layer])


def test_every_codec_has_a_row() -> None:
    assert set(CODEC_ROWS) == set(CODECS)


@pytest.mark.parametrize("name", CODECS)
@given(size=sizes, dtype=dtypes, scale=scales, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_no_more_is_lost_than_its_row_allows(
    name: str, size: Sizes, dtype: torch.dtype, scale: float, seed: int
) -> None:
    codec, put = open_codec(name), random_kv(size, dtype, scale, seed)
    got = codec.decode(padded_rows(codec.encode(*put)), KVShape.of(put[0]))
    for here, there, dim in zip(got, put, (2, 3), strict=True):  # K in groups of a channel, V in those of a token
        allowed = CODEC_ROWS[name](there, dim)
        assert ((here.float() - there.float()).abs() <= allowed).all()
        assert codec.lossless(dtype) == (not allowed.any())


@given(size=sizes, dtype=dtypes, scale=scales, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_raw_is_exact(size: Sizes, dtype: torch.dtype, scale: float, seed: int) -> None:
    codec, (k, v) = open_codec("raw"), random_kv(size, dtype, scale, seed)
    got_k, got_v = codec.decode(padded_rows(codec.encode(k, v)), KVShape.of(k))
    assert torch.equal(got_k, k)
    assert torch.equal(got_v, v)


@given(size=sizes, dtype=dtypes, scale=scales, seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_bf16_rounds_to_bfloat16(size: Sizes, dtype: torch.dtype, scale: float, seed: int) -> None:
    codec, (k, v) = open_codec("bf16"), random_kv(size, dtype, scale, seed)
    got_k, got_v = codec.decode(padded_rows(codec.encode(k, v)), KVShape.of(k))
    assert torch.equal(got_k, k.to(torch.bfloat16).to(dtype))
    assert torch.equal(got_v, v.to(torch.bfloat16).to(dtype))


@given(size=sizes, scale=scales, seed=st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_int8_is_the_reference(size: Sizes, scale: float, seed: int) -> None:
    codec, (k, v) = open_codec("int8"), random_kv(size, torch.float32, scale, seed)
    got_k, got_v = codec.decode(padded_rows(codec.encode(k, v)), KVShape.of(k))
    for layer in range(size[0]):
        for head in range(size[1]):
            for channel in range(size[3]):
                check_group(got_k[layer, head, :, channel], k[layer, head, :, channel])
            for token in range(size[2]):
                check_group(got_v[layer, head, token], v[layer, head, token])


def check_group(got: torch.Tensor, put: torch.Tensor) -> None:
    """Equal to the reference save where float32 rounds a tie the other way; and within the bound in any case."""
    low = -of_bfloat16(-float(put.min()))
    step = of_bfloat16((float(put.max()) - low) / 255)
    float_error = 1e-6 * float(put.abs().max()) + 1e-30
    assert float((got - put).abs().max()) <= step / 2 * 1.001 + float_error
    reference = torch.tensor(quantised_by_hand(put.tolist()))
    assert float((got - reference).abs().max()) <= step * 1.001 + float_error
    assert int(((got - reference).abs() > step / 2).sum()) <= 1


def test_int8_keeps_constant_groups_and_halves_the_bytes() -> None:
    k, v = torch.full((1, 2, 128, 64), 3.25), torch.full((1, 2, 128, 64), -9984.0)  # of bfloat16
    codec = open_codec("int8")
    rows = codec.encode(k, v)
    got_k, got_v = codec.decode(padded_rows(rows), KVShape.of(k))
    assert torch.equal(got_k, k)
    assert torch.equal(got_v, v)
    assert rows.shape[1] < 1.07 * k[0].numel() * 2


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("value", [65_504.0, 65_472.0, 65_376.0, 65_000.0])
def test_the_end_of_float16_stays_a_number(name: str, value: float) -> None:
    codec, k = open_codec(name), torch.ones((2, 1, 4, 64), dtype=torch.float16)
    k[..., 0], k[:, :, 1] = value, -value
    decoded = codec.decode(padded_rows(codec.encode(k, k)), KVShape.of(k))
    placed = torch.empty_like(k), torch.empty_like(k)
    codec.decode_into(padded_rows(codec.encode(k, k)), KVShape.of(k), *placed)
    for got in (*decoded, *placed):
        assert got.isfinite().all()
        assert float((got.float() - k.float()).abs().max()) <= value / 8


@pytest.mark.parametrize("name", ["raw", "bf16"])
def test_what_was_no_number_stays_none(name: str) -> None:
    codec, k = open_codec(name), torch.ones((1, 1, 4, 4), dtype=torch.float16)
    k[..., 0], k[..., 1], k[..., 2] = torch.inf, -torch.inf, torch.nan
    got, _ = codec.decode(padded_rows(codec.encode(k, k)), KVShape.of(k))
    assert torch.equal(got.isnan(), k.isnan())
    assert torch.equal(got[..., [0, 1, 3]], k[..., [0, 1, 3]])


def test_an_offset_of_a_channel_costs_no_precision() -> None:
    """Why K is asymmetric: a symmetric code of 100 ± 1 would be wrong by 0.4."""
    k = 100 + torch.rand((1, 1, 50, 4))
    got, _ = open_codec("int8").decode(padded_rows(open_codec("int8").encode(k, k)), KVShape.of(k))
    assert float((got - k).abs().max()) < 0.003


def test_an_unknown_codec_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=f"unknown codec 'int3': choose from {', '.join(CODECS)}"):
        open_codec("int3")
