from __future__ import annotations

from tests.app.library.conftest import parts, settings

__all__ = ["parts", "settings"]
