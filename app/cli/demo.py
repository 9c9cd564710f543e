"""`ragcache demo`."""

from __future__ import annotations

from app.cli.flags import CacheDir, Device, Dtype, Model, configure


def demo(model: Model = None, device: Device = None, dtype: Dtype = None, cache_dir: CacheDir = None) -> None:
    """Ingest a small corpus, ask questions, and show what reuse saves."""
    settings = configure(model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    from app.demo import run  # after the settings, so that a wrong one is told at once

    run(settings)
