"""How a store is where nobody says otherwise, whoever opens it: an application, a server or a program of its own."""

from __future__ import annotations

CODEC = "bf16"
ORDER = "value"  # of eviction
RAM_BYTES = 4 << 30  # of an application or a server, and all its ranks together; a store of its own has no limit
