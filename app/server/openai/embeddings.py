"""`/v1/embeddings`, by the embedder that the collections are searched with."""

from __future__ import annotations

import base64

from fastapi import APIRouter, Request

from app.errors import NotFound
from app.models.cores import in_thread
from app.server.callers import Asking, Serving
from app.server.openai.schemas import LONGEST_LIST, Embedded, EmbeddingRequest, EmbeddingResponse, EmbeddingUsage
from app.server.problems import RefusedRequest
from app.server.service import Service

router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/embeddings")
async def embeddings(request: Request, body: EmbeddingRequest, service: Serving, caller: Asking) -> EmbeddingResponse:
    """Vectors of length 1."""
    caller.check("read")
    await service.turns.of(caller, request)
    return await in_thread(_embedded, body, service)


def _embedded(body: EmbeddingRequest, service: Service) -> EmbeddingResponse:
    if body.model != service.embedder:
        raise NotFound(f"no embedder {body.model!r}: this server has {service.embedder!r}")
    texts = [body.input] if isinstance(body.input, str) else body.input
    if not 0 < len(texts) <= LONGEST_LIST or not all(map(str.strip, texts)):
        raise RefusedRequest(400, f"input: give 1 to {LONGEST_LIST} texts, none of them empty", param="input")
    embedder = service.pipeline.models.embedder
    if body.dimensions not in (None, embedder.dimension):
        raise RefusedRequest(400, f"dimensions: this embedder has {embedder.dimension}", param="dimensions")
    vectors = embedder.embed(texts).astype("<f4")
    packed = body.encoding_format == "base64"
    data = [
        Embedded(index=index, embedding=base64.b64encode(one.tobytes()).decode() if packed else one.tolist())
        for index, one in enumerate(vectors)
    ]
    tokens = sum(embedder.count(texts))
    return EmbeddingResponse(
        data=data, model=body.model, usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    )
