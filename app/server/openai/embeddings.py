"""`/v1/embeddings`, by the embedder that the collections are searched with."""

from __future__ import annotations

import base64
from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import Response

from app.errors import NotFound
from app.server.callers import Asking
from app.server.events import written
from app.server.openai.schemas import LONGEST_LIST, Embedded, EmbeddingRequest, EmbeddingResponse, EmbeddingUsage
from app.server.problems import RefusedRequest
from app.server.service import Service, Serving

VECTOR = 2  # levels below the response: an entry of `data`
router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/embeddings", response_model=EmbeddingResponse)
async def embeddings(request: Request, body: EmbeddingRequest, service: Serving, caller: Asking) -> Response:
    """Vectors of length 1."""
    caller.check("read")
    turn = await service.turns.of(caller, request)
    found = await turn.compute(partial(_embedded, body, service))
    turn.end()
    return Response(found, media_type="application/json")


def _embedded(body: EmbeddingRequest, service: Service) -> bytes:
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
    usage = EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens)
    return written(EmbeddingResponse(data=data, model=body.model, usage=usage).model_dump(mode="json"), VECTOR)
