"""Digests of secrets: what is stored checks one and does not tell it, slowly, so that none can be tried out in bulk.

The salt is the digest's own, and the costs stand in it: those of before stay as they are where new ones cost more.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

_COST, _BLOCK, _LANES = 1 << 14, 8, 1  # 16 MiB, and some 60 ms of a core
_LENGTH = 32
_MEMORY = 1 << 28  # the most that a stored digest may ask for


def digest(secret: str) -> str:
    salt = secrets.token_bytes(16)
    return _written(salt, _scrypt(secret, salt, _COST, _BLOCK, _LANES))


def decoy() -> str:
    """What no secret matches, and takes as long to find out as a digest."""
    return _written(secrets.token_bytes(16), secrets.token_bytes(_LENGTH))


def matches(secret: str, stored: str) -> bool:
    _, cost, block, lanes, salt, expected = stored.split("$")
    found = _scrypt(secret, bytes.fromhex(salt), int(cost), int(block), int(lanes))
    return hmac.compare_digest(found, bytes.fromhex(expected))


def _scrypt(secret: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(secret.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=_MEMORY, dklen=_LENGTH)


def _written(salt: bytes, digest: bytes) -> str:
    return f"scrypt${_COST}${_BLOCK}${_LANES}${salt.hex()}${digest.hex()}"
