"""Where a benchmark writes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def bench_folder(cache_dir: Path) -> Iterator[Path]:
    """A folder for a while. Beside the cache, since the system's for temporary files may itself be in memory."""
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache_dir, prefix="bench-") as folder:
        yield Path(folder)
