"""For whoever runs the server, and his machines: whether it lives, and whether it can serve."""

from __future__ import annotations

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel

from app.server.callers import Asking
from app.server.problems import BROKEN
from app.server.service import Serving

router = APIRouter(tags=["operations"])


class ServerState(BaseModel):
    status: str


@router.get("/health")
async def health() -> ServerState:
    """It is alive."""
    return ServerState(status="alive")


@router.get("/ready", response_model=ServerState, responses={503: {"model": ServerState}})
def ready(service: Serving, caller: Asking) -> JSONResponse:
    """Models are loaded, the catalog and the store of KV can be used. Why they are not is for who runs it."""
    lacking = service.lacks()
    told = "; ".join(lacking) if caller.runs_it else BROKEN
    return JSONResponse({"status": told if lacking else "ready"}, 503 if lacking else 200)


@router.get("/metrics", response_class=Response, responses={200: {"content": {CONTENT_TYPE_LATEST: {}}}})
def metrics(service: Serving, caller: Asking) -> Response:
    """For Prometheus: of all callers together."""
    caller.check_whole()
    return Response(service.metrics.text(), media_type=CONTENT_TYPE_LATEST)
