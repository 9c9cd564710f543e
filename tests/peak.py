"""What a call holds at once, counted by torch's allocator: the same on every machine."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch


def peak_bytes(call: Callable[[], object]) -> int:
    """Bytes that torch held at once beyond those before."""
    settings = {"activities": [torch.profiler.ProfilerActivity.CPU], "profile_memory": True}
    with torch.profiler.profile(**settings) as profiler:  # type: ignore[arg-type]
        call()
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [(event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]"]
    assert changes
    return int(np.cumsum([change for _, change in sorted(changes)]).max())
