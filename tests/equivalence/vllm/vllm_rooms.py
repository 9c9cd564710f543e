"""Many requests at once, of whom few load at a time: memory, and everything else, is back afterwards."""

from __future__ import annotations

import pytest

from ragcache.engine.vllm.link_worker import LinkWorker
from ragcache.engine.vllm.orders import Orders
from ragcache.types import Segment
from tests.equivalence.vllm.conftest import OpenPair
from tests.tiny import make_chunks, make_question, make_system
from tests.vllm_state import drain, free_blocks, room_bytes

SYSTEM, DOCUMENT = make_system(), make_chunks(20, 31, 18, 25)
PARKED = 200


def prompt(number: int) -> list[Segment]:
    return [SYSTEM, DOCUMENT[3], DOCUMENT[number % 3], make_question(5 + number % 7)]


def test_rooms_of_parked_requests_are_few(open_pair: OpenPair, monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    original = LinkWorker.obey

    def noting(worker: LinkWorker, orders: Orders, beside: int = 0) -> None:
        original(worker, orders, beside)
        held.append(room_bytes(worker))

    monkeypatch.setattr(LinkWorker, "obey", noting)
    budget = 300_000
    # Without a prefix cache each links for itself: what auto repairs for one question would serve others too.
    with open_pair(linking={"room_bytes": budget}, block_size=32, enable_prefix_caching=False) as pair:
        list(pair.torch.ingest(SYSTEM, DOCUMENT))
        expected = [list(pair.torch.generate(prompt(number), max_tokens=3, linker="auto")) for number in range(21)]
        drain(pair.engine)
        free = free_blocks(pair.engine)
        streams = [pair.vllm.generate(prompt(number), max_tokens=3, linker="auto") for number in range(PARKED)]
        for stream in streams[1::2]:
            stream.close()
        for number, stream in enumerate(streams[::2]):
            assert list(stream) == expected[2 * number % 21]
            assert stream.report.reused
        drain(pair.engine)
        assert free_blocks(pair.engine) == free
        pair.engine.check_integrity()
        assert 0 < max(held) <= budget
        assert pair.engine._ask(lambda: room_bytes(pair.engine._worker)) == 0
