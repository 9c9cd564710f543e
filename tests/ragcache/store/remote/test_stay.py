"""What stays of the traces of a text that goes: what is within some borders, in the bucket too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ragcache.store.remote import journal as module
from ragcache.store.remote.journal import Kind, RemoteTask
from ragcache.types import Variant
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled
from tests.ragcache.store.remote.test_sharing import telling


@pytest.fixture
def traces(make_variant: Any) -> dict[str, Variant]:
    """By their borders; those of `untold` ones do not tell what had a part in them."""
    told = telling(make_variant(context=("gone",)))
    borders = ("", "key-ann", "key-ben", "collection-a", "team")
    found = {border: replace(told, key=replace(told.key, border=border)) for border in borders}
    untold = make_variant((3, 3, 3))
    return found | {f"untold {one}": replace(untold, key=replace(untold.key, border=one)) for one in ("", "key-ann")}


def test_what_stays_is_no_machines_to_delete(machine: OpenMachine, folder_url: str, traces: dict[str, Variant]) -> None:
    """As it says that looks at what comes, here and in the bucket."""
    one, other = machine("one", folder_url), machine("other", folder_url)
    for variant in traces.values():
        other.put(variant)
    settled(other)
    one.drop_seeing({"gone"}, ["", "key-*"])
    told = [name for name in traces if not name.startswith("untold")]
    gone = {name for name in told if one._journal.has_gone(traces[name].key, {"gone"})}
    assert gone == {"collection-a", "team"}
    settled(one)
    assert digests_in(one) == {found.key.digest for name, found in traces.items() if name not in gone}
    assert set(other.drop_seeing({"gone"}, ["key-*"])) == {traces[name].key for name in ("", "untold ", *gone)}
    settled(other)
    assert digests_in(one) == {traces[name].key.digest for name in ("key-ann", "key-ben", "untold key-ann")}


@pytest.mark.parametrize(("first", "left"), [((), set()), (("key-*",), set()), (("", "key-*"), {""})])
def test_a_text_that_goes_twice_leaves_what_stays_by_both(
    machine: OpenMachine, folder_url: str, traces: dict[str, Variant], first: tuple[str, ...], left: set[str]
) -> None:
    journal = machine("one", folder_url)._journal
    for stay in (first, ("", "collection-*")):
        journal.add([RemoteTask(Kind.TRACES, ("gone", *stay))])
    told = [name for name in traces if not name.startswith("untold")]
    assert {name for name in told if not journal.has_gone(traces[name].key, {"gone"})} == left
    assert journal.waiting() == {Kind.TRACES: 1}


@pytest.mark.parametrize("again", [False, True])
def test_a_text_that_has_gone_goes_again_by_what_is_told_then(
    machine: OpenMachine, folder_url: str, traces: dict[str, Variant], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was put since may stay; what was on its way before is remembered as gone as long as any."""
    journal = machine("one", folder_url)._journal
    for stay in (("key-*",), ("", "key-*"), ("", "collection-*", "key-*"))[: 3 if again else 2]:
        journal.add([RemoteTask(Kind.TRACES, ("gone", *stay))])
        (task,) = journal.take((Kind.TRACES,), 9)
        assert task.told == ("gone", *stay)
        journal.end([task])
    told = [name for name in traces if not name.startswith("untold")]
    gone = {name for name in told if journal.has_gone(traces[name].key, {"gone"})}
    assert gone == {"", "collection-a", "team"}
    since = {name for name in told if journal.has_gone(traces[name].key, {"gone"}, since=task.number - 1)}
    assert since == ({"team"} if again else {"collection-a", "team"})
    monkeypatch.setattr(module, "REMEMBERED_S", -1.0)
    assert not any(journal.has_gone(traces[name].key, {"gone"}) for name in told)
    journal.take((Kind.TRACES,), 9)
    with journal._open() as connection:
        assert connection.execute("SELECT count(*) FROM tasks").fetchall() == [(1,)], "which tells what came last"
