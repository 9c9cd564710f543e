from __future__ import annotations

from tests.app.library.conftest import library, models, parts, settings

__all__ = ["library", "models", "parts", "settings"]
