"""What a pin may say, in each kind of store."""

from __future__ import annotations

import math
from typing import Any

import pytest

from ragcache.errors import ConfigError
from ragcache.store.pins import LONGEST_S


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"owner": "\ud800"}, "cannot own a pin: give text"),
        ({"seconds": math.nan}, "seconds=nan of a pin: give up to"),
        ({"seconds": math.inf}, "seconds=inf"),
        ({"seconds": -math.inf}, "seconds=-inf"),
        ({"seconds": 1e10}, "seconds=10000000000.0"),
    ],
)
def test_a_pin_that_cannot_be_kept_is_refused(
    stores: Any, make_variant: Any, values: dict[str, Any], told: str, pinned: bool
) -> None:
    store, variant = stores.open(), make_variant()
    store.put(variant)
    with pytest.raises(ConfigError, match=told):
        store.pin(variant.key, pinned, **values)
    store.pin(variant.key, owner="ann", seconds=LONGEST_S)
