"""What passes and placing take, before any request: see ragcache.engine.torch.gauge, whose sizes these are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

import torch

from ragcache.engine.resources import synchronize
from ragcache.engine.torch.gauge import DEEP, PLACED, gauged, of_pass
from ragcache.engine.vllm.orders import Measured, PromptRows
from ragcache.engine.vllm.selfcheck import free_blocks, random_ids
from ragcache.engine.vllm.spans import SpanRunner
from ragcache.errors import FAULTS, reason_of
from ragcache.loader import Block
from ragcache.rates import Work

logger = logging.getLogger(__name__)
TURNS = 12  # that count, behind one that readies the kernels. Of every rank as many: they run the same passes


def gauge(spans: SpanRunner) -> list[Measured]:
    """Of all blocks of the paged cache nobody has any yet, and what is left in them nobody reads. Nothing where there
    are none, or a pass fails: then what requests take tells it.
    """
    deep = _deep(spans)
    if deep < 1:
        return []
    most = min(int(spans.config.scheduler_config.max_num_batched_tokens), deep)
    try:
        told = [list(_turn(spans, most, deep)) for _ in range(1 + TURNS)]
    except FAULTS as error:
        if spans.ranks > 1:
            raise  # the others wait in the middle of this pass
        logger.warning("passes are not gauged: %s", reason_of(error))
        return []
    return [one for turn in told[1:] for one in turn]


def _turn(spans: SpanRunner, most: int, deep: int) -> Iterator[Measured]:
    for own in gauged(most, deep):
        rows = PromptRows(random_ids(spans, len(own)), tuple(range(own.start, own.end)), free_blocks(spans, own.end))
        yield Measured(of_pass(own), _seconds(spans, partial(spans.compute, [rows])))
    count = min(PLACED, most)
    kv = torch.zeros((2, *_shape(spans, count)), dtype=spans.config.model_config.dtype)
    yield Measured(Work(placed=count), _seconds(spans, partial(_place, spans, Block(0, 0, kv[0], kv[1]))))


def _deep(spans: SpanRunner) -> int:
    """Positions that a prompt can have here."""
    config = spans.config
    room = (int(config.cache_config.num_gpu_blocks or 1) - 1) * spans.block_size
    return int(min(DEEP, config.model_config.max_model_len, room))


def _shape(spans: SpanRunner, count: int) -> tuple[int, ...]:
    layers, kv_heads, _, head_dim = spans.room(1).shape[1:]
    return layers, kv_heads, count, head_dim


def _place(spans: SpanRunner, block: Block) -> None:
    room = spans.room(block.span.stop)
    spans.place(block, room)
    spans.write(room, [block.span], free_blocks(spans, block.span.stop))


def _seconds(spans: SpanRunner, work: Callable[[], object]) -> float:
    synchronize(spans.device)
    started = perf_counter()
    work()
    synchronize(spans.device)
    return perf_counter() - started
