from __future__ import annotations

import numpy as np

from app.ingestion.boundaries import boundary_embedder
from app.models import resolve_embedder
from app.samples import read_samples
from app.settings import Settings
from retriever.embedder import Embedder


def test_rough_vectors_point_where_exact_ones_do() -> None:
    """On a CPU that does not multiply bfloat16 they are the exact ones."""
    settings = Settings(device="cpu")
    exact = Embedder(resolve_embedder(settings.embedder))
    rough = boundary_embedder(settings, exact)
    texts = [line for text in read_samples().values() for line in text.splitlines() if line.strip()][:40]
    ours = rough.embed([*texts, ""])
    assert ours.dtype == np.float32
    np.testing.assert_allclose((ours * exact.embed([*texts, ""])).sum(axis=1), 1, atol=1e-3)
    assert rough.embed([]).shape == (0, exact.dimension)
