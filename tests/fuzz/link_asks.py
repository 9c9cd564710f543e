"""Requests to vLLM that ask for links in every wrong way: `python -m tests.fuzz.link_asks --seed 0 --count 20000`.

Valid asks are mutated (keys, values, types, numbers, linkers, hashes, captures, the prompt itself) and put to a real
engine over a tiny random model, many at once. Whatever is asked, the engine goes on; who is refused gets the answer of
a plain prompt, and who is linked that of a well-formed ask; nothing that is asked breaks linking from within, where
requests/failed would count it; and all blocks come back.
"""

from __future__ import annotations

import argparse
import os
import queue
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from ragcache.address import history_of
from ragcache.cache import ChunkCache
from ragcache.engine.torch.engine import TorchEngine
from ragcache.engine.vllm.block_names import Leaders, LinkName
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.outcomes import LinkTotals
from ragcache.engine.vllm.plans import Pace, Stepping
from ragcache.engine.vllm.requests import KEY, CaptureRequest, capture_params, link_params, read_request
from ragcache.errors import ConfigError, PromptError
from ragcache.store import open_store
from ragcache.types import Segment, System, Text, VariantKey
from tests.fuzz.mutation import mutated
from tests.tiny import draw, make_chunks, make_question, make_system, make_tiny
from tests.vllm_state import drain, free_blocks

TOKENS = 4  # of each answer
SETTLED = ("naive", "first_tokens", "full")  # what others repair hangs on who asked first, where links are shared
AT_ONCE = 48
PROMPTS = 64
ABORTED, AT_THE_DOOR = "aborted", "refused by vLLM itself"
SYSTEM, DOCUMENT = make_system(40), make_chunks(50, 61, 48, 55, 42, 34)
STRANGERS = make_chunks(30, 17, seed=9)
ALWAYS = Pace(LinkSettings(link_when="always"), Stepping(), 1)
CAPTURED = System(draw(20, 77))  # behind it chunks are captured: links of the others stay what they are
# What is raised before vLLM has the request: no object, too deep, too large a number.
DOOR = (AttributeError, ConfigError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Ask:
    ids: tuple[int, ...]
    params: Any
    aborts: bool = False


@dataclass(frozen=True)
class Answer:
    tokens: list[int] | None  # None where nobody read it
    told: Any
    found_plain: bool = False


class Kept(LinkTotals):
    """All that was ever taken."""

    def __init__(self) -> None:
        super().__init__()
        self.all: Counter[str] = Counter()

    def take(self) -> dict[str, float]:
        taken = super().take()
        self.all.update(taken)  # type: ignore[arg-type]  # seconds are no whole numbers
        return taken


class Watched(Leaders):
    """Remembers how each request's blocks were named."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[str, Any] = {}

    def know(self, request: str, names: Any, link: LinkName) -> None:
        super().know(request, names, link)
        self.known[request] = names

    def found_plain(self, request: str) -> bool:
        """Whether some of it, or all, was found as the plain prefill of one before."""
        names = next((names for one, names in self.known.items() if one.startswith(request)), None)
        return names is not None and (names._given is None or names._given is not names._asked)


class Campaign:
    def __init__(self, engine: Any, store: Any, seed: int, sharing: bool):
        self.engine, self.store = engine, store
        self.dice, self.sharing = random.Random(seed), sharing
        self.kinds: Counter[str] = Counter()
        self.totals = engine._connector.scheduler.outcomes.totals = Kept()
        self.leaders = engine._connector.scheduler._leaders = Watched()
        self._plain: dict[tuple[int, ...], list[int]] = {}
        self._linked: dict[Any, list[int]] = {}
        self._free = free_blocks(engine)
        self._refused = 0  # that the engine is to have counted

    def run(self, count: int) -> None:
        done = 0
        while done < count:
            asks = [self._draw() for _ in range(min(AT_ONCE, count - done))]
            expected = [self._expected(ask) for ask in asks]
            for ask, wanted, answer in zip(asks, expected, self._answers(asks), strict=True):
                self._check(ask, wanted, answer)
            self.leaders.known.clear()
            done += len(asks)
            self._tidy()

    # -- what is asked ----------------------------------------------------------------------------------------------

    def _draw(self) -> Ask:
        segments, params = self._capture() if (captures := self.dice.random() < 0.15) else self._link()
        ids = [token for segment in segments for token in segment.ids]
        if self.dice.random() < 0.05:
            ids[self.dice.randrange(len(ids))] = self.dice.randrange(199)
        for _ in range(self.dice.choice((0, 0, 1, 1, 1, 3))):
            params = mutated(params, self.dice)
        # Whether a capture has failed when it is aborted nobody knows.
        return Ask(tuple(ids), params, self.dice.random() < 0.06 and not captures)

    def _link(self) -> tuple[list[Segment], Any]:
        dice = random.Random(self.dice.randrange(PROMPTS))  # few prompts, whose right answers are computed once
        middle: list[Segment] = list(dice.sample([*DOCUMENT, *STRANGERS], dice.randint(1, 4)))
        if dice.random() < 0.2:
            middle.insert(dice.randrange(len(middle) + 1), Text(draw(6, 50)))
        segments = [SYSTEM, *middle, make_question(dice.choice((1, 5, 15)))]
        return segments, link_params(segments, self.dice.choice(("auto", "fast", "naive", "first_tokens:k=4", "full")))

    def _capture(self) -> tuple[list[Segment], Any]:
        segments: list[Segment] = [CAPTURED, *self.dice.sample(DOCUMENT, self.dice.randint(0, 2))]
        keys = [VariantKey("engine", "", (), CAPTURED.hash)]
        for segment in segments[1:]:
            before = tuple(key.chunk for key in keys[1:])
            keys.append(VariantKey("engine", CAPTURED.hash, before, segment.hash, history_of(keys[1:])))
        return segments, capture_params(segments, keys)

    # -- what is right ----------------------------------------------------------------------------------------------

    def _expected(self, ask: Ask) -> tuple[str, list[int] | None]:
        """What becomes of the ask, and its answer; None where nobody reads it."""
        from ragcache.engine.vllm.jobs import NamedLinkage
        from ragcache.engine.vllm.plans import plan_linkage

        name = self.engine.spec.fingerprint
        try:
            asked = read_request(ask.params, ask.ids, "auto", name)
            if isinstance(asked, CaptureRequest):  # of exchanges there are none
                return "refused" if asked.exchange else "captured", self._plain_answer(ask.ids)
            made = plan_linkage(asked, name, self.store, True, ALWAYS) if asked is not None else None
        except (PromptError, ConfigError):
            return "refused", self._plain_answer(ask.ids)
        if asked is None or not isinstance(made, NamedLinkage):
            return "other" if asked is None else "plain", self._plain_answer(ask.ids)
        place = (asked.segments, asked.linker)
        if place not in self._linked:
            spec = ask.params[KEY].get("linker", "auto")
            self.engine.forget_prefixes()
            self._linked[place] = self._one(Ask(ask.ids, link_params(asked.segments, spec)))
        return "linked", self._linked[place]

    def _plain_answer(self, ids: tuple[int, ...]) -> list[int]:
        if ids not in self._plain:
            self._plain[ids] = self._one(Ask(ids, None))
        return self._plain[ids]

    def _one(self, ask: Ask) -> list[int]:
        (answer,) = self._answers([ask])
        assert answer.tokens is not None
        assert ask.params is None or answer.told[KEY]["reused"] + answer.told[KEY]["repaired"] > 0
        return answer.tokens

    # -- what vLLM makes of it --------------------------------------------------------------------------------------

    def _answers(self, asks: Sequence[Ask]) -> list[Answer]:
        waiting = [self._submitted(ask) for ask in asks]
        for ask, (name, _) in zip(asks, waiting, strict=True):
            if ask.aborts and name:
                self.engine.abort(name)
        return [
            self._read(name, outputs) if name and not ask.aborts else Answer(None, ABORTED if name else AT_THE_DOOR)
            for ask, (name, outputs) in zip(asks, waiting, strict=True)
        ]

    def _submitted(self, ask: Ask) -> tuple[str, queue.SimpleQueue[Any]]:
        from vllm.exceptions import VLLMError

        outputs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        extra = {"kv_transfer_params": ask.params} if ask.params is not None else None
        try:
            return self.engine.submit(ask.ids, self.engine.sampling(TOKENS, extra), outputs.put), outputs
        except (*DOOR, VLLMError):
            return "", outputs

    def _read(self, name: str, outputs: queue.SimpleQueue[Any]) -> Answer:
        tokens: list[int] = []
        while True:
            output = outputs.get()
            assert output is not None, "the engine ended"
            tokens += output.outputs[0].token_ids
            if output.finished:
                return Answer(tokens, output.kv_transfer_params, self.leaders.found_plain(name))

    def _check(self, ask: Ask, wanted: tuple[str, list[int] | None], answer: Answer) -> None:
        (kind, tokens), told = wanted, answer.told
        if answer.tokens is None:
            self.kinds[told] += 1
            self._refused += kind == "refused" and told == ABORTED
            return
        if kind == "captured" and told[KEY]["incidents"]:  # what is to stand before it is not stored
            kind = "refused"
        self.kinds[kind] += 1
        self._refused += kind == "refused"
        where = f"{kind}: {str(ask.params)[:2000]} of {ask.ids}" if not _deep(ask.params) else kind
        settled = kind != "linked" or not self.sharing or (_linker(ask).startswith(SETTLED) and not answer.found_plain)
        assert tokens is None or not settled or answer.tokens == tokens, (answer, tokens, where)
        if kind == "refused":
            assert told[KEY]["incidents"][0].startswith("not "), where
        if kind == "linked":
            assert told[KEY]["reused"] + told[KEY]["repaired"] > 0, where

    def _tidy(self) -> None:
        drain(self.engine)
        assert free_blocks(self.engine) == self._free, "blocks are lost"
        self.engine.check_integrity()
        self.engine._ask(self.totals.take)
        counted = self.totals.all
        assert counted["requests/failed"] == 0, "something broke from within: see the log"
        assert counted["requests/refused"] == self._refused, (counted, self.kinds)


def _linker(ask: Ask) -> str:
    return str(ask.params[KEY].get("linker", "auto"))


def _deep(value: Any) -> bool:
    """Deeper than Python's own copy and text go."""
    try:
        str(value)
    except (RecursionError, ValueError):  # a number of too many digits
        return True
    return False


@contextmanager
def opened(folder: Path, seed: int) -> Iterator[Campaign]:
    from ragcache.engine.vllm.engine import VllmEngine

    make_tiny(head_dim=32, hidden_size=128).model.save_pretrained(folder / "model")
    store = open_store(folder / "kv", ram_bytes=1_000_000, codec="raw")  # RAM for some of it
    plain = TorchEngine.from_folder(folder / "model", torch.float32, torch.device("cpu"))
    list(ChunkCache(plain, store, "naive", context_chunks=2, keep_missed=False).ingest(SYSTEM, DOCUMENT))
    sharing = bool(seed % 2)
    options: dict[str, Any] = {
        "enable_prefix_caching": sharing,
        "max_model_len": 512,
        "enforce_eager": True,
        "kv_cache_memory_bytes": 64_000_000,
        "block_size": 32,
    }
    engine = VllmEngine(
        folder / "model", torch.float32, store, linking={"captures": True, "link_when": "always"}, **options
    )
    try:
        yield Campaign(engine, store, seed, sharing)
    finally:
        engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    arguments = parser.parse_args()
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    started = perf_counter()
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), arguments.seed) as campaign:
        campaign.run(arguments.count)
        print(f"link_asks: seed {arguments.seed}, {arguments.count} requests in {perf_counter() - started:.0f} s")
        print(dict(campaign.kinds))
        print({name: count for name, count in campaign.totals.all.items() if name.startswith("requests/")})


if __name__ == "__main__":
    main()
