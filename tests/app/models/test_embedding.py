"""What of a chunk and its headings the embedder reads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from app.models.embedding import embed_chunks
from app.models.folders import resolve_embedder
from retriever import Vectors
from retriever.embedder import Embedder

TEXT = "The ferry leaves the island at noon. " * 28  # about 230 tokens of 256
OUTER, INNER = "All islands of the northern sea " * 9, "Ferries"


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(resolve_embedder("bundled:minilm"))


def embedded(embedder: Embedder, heading: Sequence[str], text: str) -> tuple[Vectors, int]:
    vectors, long = embed_chunks(embedder, [(("Bread",), "Rye."), (heading, text), ((), "Rye.")])
    return vectors[1], long


def check(embedder: Embedder, vector: Vectors, text: str) -> None:
    np.testing.assert_allclose(vector, embedder.embed([text])[0], atol=1e-5)


def test_a_chunk_that_fits_is_below_all_of_its_headings(embedder: Embedder) -> None:
    vectors, long = embed_chunks(embedder, [(("A", "B"), "Rye."), ((), "Bread.")])
    assert long == 0
    assert (vectors == embedder.embed(["A > B\nRye.", "Bread."])).all()


def test_outer_headings_make_room(embedder: Embedder) -> None:
    assert embedder.whole([f"{OUTER} > {INNER}\n{TEXT}", f"{INNER}\n{TEXT}"]) == [False, True]
    vector, long = embedded(embedder, (OUTER, OUTER, INNER), TEXT)
    assert long == 0
    check(embedder, vector, f"{INNER}\n{TEXT}")


def test_no_more_of_them_go_than_must(embedder: Embedder) -> None:
    vector, long = embedded(embedder, (OUTER, "Sea", INNER), TEXT)
    assert long == 0
    check(embedder, vector, f"Sea > {INNER}\n{TEXT}")


@pytest.mark.slow
def test_the_innermost_stays_where_the_text_is_too_long_itself(embedder: Embedder) -> None:
    vector, long = embedded(embedder, (OUTER, INNER), TEXT * 2)
    assert long == 1
    check(embedder, vector, f"{INNER}\n{TEXT * 2}")
    assert embedded(embedder, (), TEXT * 2)[1] == 1


def test_no_chunks_have_no_vectors(embedder: Embedder) -> None:
    vectors, long = embed_chunks(embedder, [])
    assert (vectors.shape, long) == ((0, embedder.dimension), 0)
