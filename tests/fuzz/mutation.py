"""Changes to what a client sends, which keep most of its structure."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from ragcache.linking import LINKERS

NUMBERS = ["0", "-1", "1", "0.5", "1e999", "-1e999", "nan", "inf", "1_0", "٣", "0x10", "2147483648", "1" + "0" * 150,
           "1" + "0" * 400, "1e300", "none", "true", "", " ", "\ud800"]  # fmt: skip
SETTINGS = ["ratio", "depth", "half", "k", "alpha", "first", "seed", "full_layers", "name", "__class__", ""]
KEYS = ["ragcache", "segments", "linker", "capture", "keys", "exchange", "kind", "tokens", "sha256", "system",
        "context", "chunk", "history", "do_remote_prefill", "do_remote_decode", "\ud800", "", "x" * 10_000]  # fmt: skip


def odd_value(dice: random.Random) -> Any:
    made: list[Callable[[], Any]] = [
        lambda: None,
        lambda: dice.choice((True, False, 0, -1, 1, 2**31, 2**63, -(2**70), 10**400, 10**5000)),
        lambda: dice.choice((0.0, 1.5, -1e300, float("nan"), float("inf"))),
        lambda: dice.choice(("", "x", "\ud800", "\x00", "system", "chunk", "text", "auto", "x" * 100_000, "a" * 64)),
        lambda: dice.choice(([], {}, [[]], {"": {}}, [None] * 1000, [{}] * 100_000, {str(n): n for n in range(1000)})),
        lambda: deep(dice.choice((5, 50, 3000))),
        lambda: odd_linker(dice),
    ]
    return dice.choice(made)()


def deep(depth: int) -> Any:
    value: Any = []
    for level in range(depth):
        value = [value] if level % 2 else {"segments": value}
    return value


def odd_linker(dice: random.Random) -> str:
    settings = ",".join(f"{dice.choice(SETTINGS)}={dice.choice(NUMBERS)}" for _ in range(dice.choice((0, 1, 1, 2, 60))))
    return f"{dice.choice([*LINKERS, '', 'AUTO', 'auto '])}:{settings}" if settings else dice.choice(list(LINKERS))


def mutated(params: Any, dice: random.Random) -> Any:
    """A changed copy."""
    try:
        params = copy.deepcopy(params)
    except RecursionError:  # deep enough
        return params
    places = list(_places(params))
    if not places or dice.random() < 0.02:
        return odd_value(dice)
    if dice.random() < 0.15 and isinstance(params, dict) and isinstance(params.get("ragcache"), dict):
        params["ragcache"]["linker"] = odd_linker(dice)
        return params
    within, key = dice.choice(places)
    dice.choice((_replace, _replace, _remove, _repeat, _add, _nudge, _swap))(within, key, places, dice)
    return params


def _places(value: Any, depth: int = 0) -> Iterator[tuple[Any, Any]]:
    """Containers and their keys."""
    if depth > 6 or not isinstance(value, dict | list) or len(value) > 100:
        return
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        yield from _places(value[key], depth + 1)


def _replace(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    within[key] = odd_value(dice)


def _remove(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    del within[key]


def _repeat(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    if isinstance(within, list):
        within[key:key] = [copy.deepcopy(within[key])] * dice.choice((1, 3, 1000))
    else:
        within[dice.choice(KEYS)] = copy.deepcopy(within[key])


def _add(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    if isinstance(within, dict):
        within[dice.choice(KEYS)] = odd_value(dice)
    else:
        within.insert(key, odd_value(dice))


def _nudge(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    value = within[key]
    if value is None or isinstance(value, bool | float):
        within[key] = not value
    elif isinstance(value, int):
        within[key] = dice.choice((value - 1, value + 1, value + 2**31, 0, str(value.bit_length()), [value]))
    elif isinstance(value, str) and value:
        place = dice.randrange(len(value))
        within[key] = (
            value[:place] + dice.choice(("", "0", "f", value[place].upper(), "\ud800", " ")) + value[place + 1 :]
        )
    else:
        within[key] = [value]


def _swap(within: Any, key: Any, places: list[tuple[Any, Any]], dice: random.Random) -> None:
    other, place = dice.choice(places)
    value = copy.deepcopy(other[place])
    within[key] = value
