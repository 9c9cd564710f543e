"""`ragcache demo`."""

from __future__ import annotations

from app.cli.flags import CacheDir, Device, Dtype, Model, configure
from app.demo import run


def demo(model: Model = None, device: Device = None, dtype: Dtype = None, cache_dir: CacheDir = None) -> None:
    """Ingest a small corpus, ask questions, and show what reuse saves."""
    settings = configure(model=model, device=device, dtype=dtype, cache_dir=cache_dir)
    run(settings)
