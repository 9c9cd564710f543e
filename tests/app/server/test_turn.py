"""The turn of a computation that its asker leaves before a thread begins it."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from app.server.callers import Caller
from app.server.queueing import Turns

ANNA = Caller("anna")


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_computation_that_is_cancelled_before_it_begins_ends_its_turn() -> None:
    async def run() -> None:
        turns, busy = Turns(1, 0), threading.Event()
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        waiting = asyncio.ensure_future(asyncio.to_thread(busy.wait))
        async with turns.turn(ANNA):
            pass
        turn = await turns._take(ANNA)
        computing = asyncio.ensure_future(turn.compute(list))
        await settled()
        computing.cancel()
        await settled()
        turn.end()
        assert turns.running == 1, "a thread may still begin it"
        busy.set()
        await waiting
        while turns.running:
            await asyncio.sleep(0.001)

    asyncio.run(run())
