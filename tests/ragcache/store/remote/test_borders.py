"""KV within borders that lies in a bucket."""

from __future__ import annotations

from typing import Any

from ragcache.address import group_of
from tests.ragcache.store.remote.conftest import OpenMachine, digests_in, settled


def test_a_chunk_leaves_the_bucket_within_a_group_of_borders(
    machine: OpenMachine, folder_url: str, make_variant: Any
) -> None:
    """Also what this machine has never had; and what comes from there meanwhile does not stay."""
    gone = [make_variant(border=one) for one in ("club-ann", "club-ben")]
    apart = [make_variant(), make_variant(border="key-ann"), make_variant((8, 8, 8), border="club-ann")]
    one, other = machine("one", folder_url), machine("other", folder_url)
    for variant in (*gone, *apart):
        other.put(variant)
    settled(other)
    assert one.variants(gone[1].key.family) != []
    one.drop_chunk("engine-a", "system", gone[0].key.chunk, "club-ann", elsewhere=True, group=group_of("club-ann"))
    assert [one.variants(variant.key.family) for variant in gone] == [[], []], "at once"
    settled(one)
    assert digests_in(one) == {variant.key.digest for variant in apart}
