"""What every engine refuses, before anything is computed or named."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from benchmarks.caches import prefill_prompt
from ragcache.cache import ChunkCache
from ragcache.errors import PromptError
from ragcache.kvgen import KVGen
from ragcache.store import open_store
from ragcache.types import Chunk, System, Text
from tests.tiny import VOCABULARY, Tiny, make_chunks, make_system

SYSTEM = make_system()
DOCUMENT = make_chunks(9, 12)
NUMPY = np.int64(5)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ((-1,), "token -1 "),
        ((VOCABULARY,), f"token {VOCABULARY} is not in the model's vocabulary"),
        ((1, 2**31), "token 2147483648 is no token id"),
        ((2**70,), "is no token id"),
        ((1, True), "token True is of the type bool: give plain integers"),
        ((1, 2.0), "token 2.0 is of the type float"),
        ((NUMPY,), "is of the type int64: give plain integers"),
        (("5",), "token '5' is of the type str"),
        ((None,), "token None"),
    ],
)
def test_what_is_no_token_is_refused_before_anything_is_named_by_it(
    tiny: Tiny, ids: tuple[Any, ...], message: str
) -> None:
    """Two sequences of one name would share their KV; True is 1 to whoever hashes it."""
    maker = KVGen(tiny.engine)
    system = maker.system(SYSTEM)
    store = open_store(codec="raw")
    cache = ChunkCache(tiny.engine, store, "naive")
    before = replace(system, ids=(*ids, *system.ids[len(ids) :]))
    for refused in (
        lambda: maker.system(System(ids)),
        lambda: maker.capture(system, [], Chunk(ids)),
        lambda: maker.capture(before, [], DOCUMENT[0]),
        lambda: list(cache.ingest(SYSTEM, [Chunk(ids)])),
        lambda: list(cache.ingest(System(ids), DOCUMENT)),
        lambda: prefill_prompt(cache, [System(ids), DOCUMENT[0], Text((1,))]),
        lambda: prefill_prompt(cache, [SYSTEM, Chunk(ids), Text((1,))]),
        lambda: prefill_prompt(cache, [SYSTEM, DOCUMENT[0], Text(ids)]),
        lambda: prefill_prompt(cache, [SYSTEM, DOCUMENT[0], Text(ids)], linker="full"),
    ):
        with pytest.raises(PromptError, match=re.escape(message)):
            refused()
    assert store.stats()[0].entries <= 1, "the System segment alone"


def test_an_empty_prompt_or_system_is_refused_everywhere(tiny: Tiny) -> None:
    cache = ChunkCache(tiny.engine, open_store(codec="raw"), "naive")
    empty = System(())
    for segments in ([], [empty, Text((1,))], [empty, DOCUMENT[0], Text((1,))]):
        for linker in ("naive", "full"):
            with pytest.raises(PromptError, match=r"is empty|no segments"):
                cache.generate(segments, linker=linker)
    for refused in (
        lambda: cache.system_variant(empty),
        lambda: list(cache.ingest(empty, DOCUMENT)),
        lambda: list(cache.ingest(empty, [])),
        lambda: tiny.engine.capture([], empty),
    ):
        with pytest.raises(PromptError, match="empty system"):
            refused()
    with pytest.raises(PromptError, match="no tokens"):
        tiny.engine.check_tokens(())
