"""KVGen against a slow reference: whole attention matrices, one head and one token at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from ragcache.engine.torch import attention, forward
from ragcache.errors import ConfigError, PromptError
from ragcache.kvgen import KVGen
from ragcache.types import Chunk, FloatArray, Profile, System, Text, Variant
from tests import reference
from tests.tiny import Tiny, assert_close, make_chunks, make_system, stock

SYSTEM = make_system()
DOCUMENT = make_chunks(9, 12, 8, 10, 11)


@dataclass
class Plain:
    """A segment's KV, and what its tokens attended to."""

    k: torch.Tensor  # [layers, kv_heads, n, head_dim], unrotated
    v: torch.Tensor
    attention: FloatArray  # [layers, heads, tokens, tokens], rows of other segments are 0


def turned(x: torch.Tensor, model: Any, start: int) -> torch.Tensor:
    """x [heads, n, dim] rotated with transformers' own tables."""
    places = torch.arange(start, start + x.shape[1])[None]
    cos, sin = model.model.rotary_emb(torch.zeros(1), places)  # [1, n, dim]
    half = x.shape[-1] // 2
    swapped = torch.cat((-x[..., half:], x[..., :half]), -1)
    return x * cos + swapped * sin


@torch.inference_mode()
def plain_capture(model: Any, before: Sequence[Plain], ids: Sequence[int]) -> Plain:
    hidden = model.model.embed_tokens(torch.tensor(ids))
    start, n = sum(part.k.shape[2] for part in before), len(ids)
    keys, values, maps = [], [], []
    for index, layer in enumerate(model.model.layers):
        attention, x = layer.self_attn, layer.input_layernorm(hidden)
        q, k, v = (
            getattr(attention, f"{name}_proj")(x).view(n, -1, attention.head_dim).transpose(0, 1) for name in "qkv"
        )
        if hasattr(attention, "q_norm"):
            q, k = attention.q_norm(q), attention.k_norm(k)
        keys.append(k)
        values.append(v)
        all_k = turned(torch.cat([*(part.k[index] for part in before), k], 1), model, 0)
        all_v = torch.cat([*(part.v[index] for part in before), v], 1)
        out, matrix = plain_attention(turned(q, model, start), all_k, all_v, start)
        maps.append(matrix)
        hidden = hidden + attention.o_proj(out)
        hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
    return Plain(torch.stack(keys), torch.stack(values), np.stack(maps))


def plain_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int) -> tuple[torch.Tensor, FloatArray]:
    heads, n, dim = q.shape
    out = torch.zeros(n, heads, dim, dtype=torch.float64)
    matrix = np.zeros((heads, start + n, start + n), dtype=np.float32)
    for head in range(heads):
        kv = head // (heads // k.shape[0])
        for row in range(n):
            seen = slice(0, start + row + 1)
            weights = (k[kv, seen].double() @ q[head, row].double() / math.sqrt(dim)).softmax(0)
            out[row, head] = weights @ v[kv, seen].double()
            matrix[head, start + row, seen] = weights.numpy()
    return out.view(n, heads * dim).float(), matrix


def plain_document(model: Any, context_chunks: int) -> list[tuple[Plain, list[int]]]:
    """Each chunk and the lengths of System, context and chunk."""
    system = plain_capture(model, [], SYSTEM.ids)
    done: list[Plain] = []
    found = []
    for chunk in DOCUMENT:
        before = [system, *(done[-context_chunks:] if context_chunks else [])]
        done.append(plain_capture(model, before, chunk.ids))
        found.append((done[-1], [*(part.k.shape[2] for part in before), len(chunk)]))
    return found


def assert_same_profile(ours: Profile, theirs: Profile) -> None:
    assert ours.lengths == theirs.lengths
    for name in ("inter", "intra", "received"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), atol=2e-5, err_msg=name)


def captured(tiny: Tiny, context_chunks: int) -> list[Variant]:
    maker = KVGen(tiny.engine, context_chunks)
    return list(maker.document(maker.system(SYSTEM), DOCUMENT))


@pytest.mark.parametrize("context_chunks", [0, 1, 2, 10])
def test_a_document_equals_the_loops(tiny: Tiny, context_chunks: int) -> None:
    check_document(tiny, context_chunks)


def test_a_document_equals_the_loops_on_every_model(every_tiny: Tiny) -> None:
    check_document(every_tiny, 2)


def check_document(tiny: Tiny, context_chunks: int) -> None:
    variants = captured(tiny, context_chunks)
    expected = plain_document(tiny.model, context_chunks)
    for place, (variant, (plain, lengths)) in enumerate(zip(variants, expected, strict=True)):
        assert variant.ids == DOCUMENT[place].ids
        assert variant.key.context == tuple(chunk.hash for chunk in DOCUMENT[max(0, place - context_chunks) : place])
        assert (variant.key.system, variant.key.chunk) == (SYSTEM.hash, DOCUMENT[place].hash)
        assert_close(variant.k, plain.k)
        assert_close(variant.v, plain.v)
        assert_same_profile(variant.profile, reference.profile(plain.attention, lengths))


def test_profiles_of_exact_chunks_are_of_transformers_own_attention(every_tiny: Tiny) -> None:
    variants = captured(every_tiny, 2)
    for place in range(3):
        segments = [SYSTEM, *DOCUMENT[: place + 1]]
        ids = [token for segment in segments for token in segment.ids]
        expected = stock(every_tiny.model, ids)
        own = slice(len(ids) - len(DOCUMENT[place]), None)
        lengths = [len(segment) for segment in segments]
        assert_same_profile(
            variants[place].profile, reference.profile(torch.stack(expected.attentions).numpy(), lengths)
        )
        assert_close(variants[place].v, expected.v[:, :, own])


@pytest.mark.parametrize("rows", [1, 4, 7, 100])
@pytest.mark.parametrize("turn", [5, 300])
def test_blocks_of_rows_give_the_same(tiny: Tiny, monkeypatch: pytest.MonkeyPatch, rows: int, turn: int) -> None:
    whole = captured(tiny, 2)
    monkeypatch.setattr(attention, "READ_ROWS", rows)
    monkeypatch.setattr(forward, "PREFILL_ROWS", turn)
    for one, other in zip(whole, captured(tiny, 2), strict=True):
        assert_close(one.k, other.k, 1e-5)
        assert_close(one.v, other.v, 1e-5)
        assert_same_profile(one.profile, other.profile)


def test_the_system_segment_stands_first_and_alone(tiny: Tiny) -> None:
    variant = KVGen(tiny.engine).system(SYSTEM)
    plain = plain_capture(tiny.model, [], SYSTEM.ids)
    assert_close(variant.k, plain.k)
    assert variant.profile.lengths == (0,)
    assert not variant.profile.inter.any()
    assert_same_profile(variant.profile, reference.profile(plain.attention, [0, len(SYSTEM)]))


def test_a_document_is_computed_as_it_is_read(tiny: Tiny) -> None:
    maker, read = KVGen(tiny.engine), []

    def chunks() -> Any:
        for chunk in DOCUMENT:
            read.append(chunk)
            yield chunk

    variants = maker.document(maker.system(SYSTEM), chunks())
    assert read == []
    next(variants)
    assert len(read) == 1


def test_each_chunk_of_a_long_document_gets_a_lead_variant_too(tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def ingested(context_chunks: int) -> list[Variant]:
        maker = KVGen(tiny.engine, context_chunks)
        return list(maker.ingest(maker.system(SYSTEM), DOCUMENT))

    alone = {variant.key: variant for variant in captured(tiny, 0)}
    assert all(len(ingested(count)) == len(DOCUMENT) for count in (0, 2)), "not of a short one"
    monkeypatch.setattr("ragcache.kvgen.LEAD_TOKENS", 25)  # reached with the third chunk
    made = ingested(2)
    assert [variant.ids for variant in made] == [DOCUMENT[place].ids for place in (0, 1, 2, 1, 2, 3, 3, 4, 4)]
    for lead in (made[place] for place in (3, 4, 6, 8)):
        assert_close(lead.k, alone[lead.key].k)
        assert_close(lead.v, alone[lead.key].v)
    assert len({variant.key for variant in made}) == len(made)
    assert [variant.key for variant in ingested(0)] == list(alone), "it is one already"


@pytest.mark.parametrize(
    ("context", "exact"),
    [
        ([], True),
        (["0"], True),
        (["0", "1 behind 0"], True),
        (["1 behind 0"], False),  # it saw a chunk that is not here
        (["0", "1"], False),  # it did not see a chunk that is here
        (["1", "0"], False),
        (["0", "1 behind 0", "2 behind 1"], False),
    ],
)
def test_a_chunk_behind_any_stored_context_knows_whether_it_is_exact(
    tiny: Tiny, context: list[str], exact: bool
) -> None:
    maker = KVGen(tiny.engine)
    system, (zero, one, two, last) = maker.system(SYSTEM), DOCUMENT[:4]
    known = {"0": maker.capture(system, [], zero), "1": maker.capture(system, [], one)}
    known["1 behind 0"] = maker.capture(system, [known["0"]], one)
    known["2 behind 1"] = maker.capture(system, [known["1"]], two)
    before = [known[name] for name in context]
    variant = maker.capture(system, before, last)
    assert variant.key.context == tuple(part.key.chunk for part in before)
    assert (variant.key.history == "") == exact
    ids = [token for part in (system, *before, variant) for token in part.ids]
    error = float((variant.v - stock(tiny.model, ids).v[:, :, -len(last) :]).abs().max())
    assert (error < 1e-3) == exact, error


def test_histories_that_differ_are_told_apart(tiny: Tiny) -> None:
    maker = KVGen(tiny.engine)
    system, (zero, one, two, last) = maker.system(SYSTEM), DOCUMENT[:4]
    contexts = [maker.capture(system, [maker.capture(system, [], other)], one) for other in (zero, two)]
    keys = [maker.capture(system, [context], last).key for context in contexts]
    assert keys[0].context == keys[1].context
    assert keys[0].digest != keys[1].digest
    assert keys[0].family == keys[1].family


def test_bad_input(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="context_chunks is -1"):
        KVGen(tiny.engine, -1)
    maker = KVGen(tiny.engine)
    system = maker.system(SYSTEM)
    with pytest.raises(PromptError, match="empty chunk"):
        maker.capture(system, [], Chunk(()))
    with pytest.raises(PromptError, match="empty system"):
        maker.system(System(()))
    with pytest.raises(PromptError, match="Text stands behind others"):
        tiny.engine.capture([system], Text((1,)))
    with pytest.raises(PromptError, match=r"517 tokens.* 512"):
        maker.capture(system, [], make_chunks(510)[0])
    with pytest.raises(PromptError, match=r"600 tokens.* 512"):
        maker.system(System((1,) * 600))
