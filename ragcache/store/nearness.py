"""Threads that wait for a disk wait for no network: what is not near goes on on threads that may."""

from __future__ import annotations

import threading


class _At(threading.local):
    """What this thread waits for, if it is one that waits in place of others."""

    disk = network = False


AT = _At()


class Beyond(Exception):
    """It is not near, and may be far."""
