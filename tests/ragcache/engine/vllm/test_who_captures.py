"""Who may have KV captured inside vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.requests import KEY, capture_params
from ragcache.errors import ConfigError
from ragcache.types import VariantKey
from tests.ragcache.engine.vllm.conftest import SYSTEM, MakeScheduler, plan
from tests.tiny import Tiny


def refused(scheduler: LinkScheduler, tiny: Tiny, exchange: str = "", foreign: str | None = None) -> str:
    key = VariantKey(tiny.engine.spec.fingerprint, "", (), SYSTEM.hash)
    assert plan(scheduler, "a", SYSTEM.ids, capture_params([SYSTEM], [key], exchange), foreign) is None
    assert scheduler.matched("a", 0) == 0
    told = scheduler.gone("a")
    assert told is not None
    (incident,) = told[KEY]["incidents"]
    return str(incident)


def test_clients_capture_only_where_that_is_allowed(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    assert "captures are off" in refused(make_scheduler(), tiny)


def test_an_engine_of_this_process_captures_always(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    scheduler = make_scheduler()
    scheduler.exchanges = {"its exchange"}
    key = VariantKey(tiny.engine.spec.fingerprint, "", (), SYSTEM.hash)
    assert plan(scheduler, "a", SYSTEM.ids, capture_params([SYSTEM], [key], "its exchange")) == 0


@pytest.mark.parametrize("captures", [False, True])
def test_an_exchange_that_nobody_has_is_refused(make_scheduler: MakeScheduler, tiny: Tiny, captures: bool) -> None:
    scheduler = make_scheduler(captures=captures)
    scheduler.exchanges = {"its exchange"}
    assert "exchange that is not here" in refused(scheduler, tiny, "another exchange")


def test_what_its_ids_do_not_tell_is_neither_captured_nor_linked(make_scheduler: MakeScheduler, tiny: Tiny) -> None:
    assert "it holds images" in refused(make_scheduler(captures=True), tiny, foreign="it holds images")


@pytest.mark.parametrize("name", ["captures", "share_exact"])
@pytest.mark.parametrize("value", ["false", 1, None])
def test_a_permission_is_given_in_one_way(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} is .*: choose true or false"):
        LinkSettings(**{name: value})
