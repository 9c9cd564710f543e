"""The application: all routes over one service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from app.loaders.base import sendable_bytes
from app.models.cores import in_thread
from app.server import (
    cache_budgets,
    cache_effects,
    cache_history,
    caches,
    collections,
    conversations,
    documents,
    first_steps,
    jobs,
    kv_cache,
    operations,
    pages,
    questions,
    shown_settings,
)
from app.server.gate import Gate
from app.server.limits import BodyLimits
from app.server.openai import completions, embeddings, models
from app.server.problems import ProblemBody, tell_problems
from app.server.queueing import TurnsEnd
from app.server.requests import Observed
from app.server.service import Service
from app.server.tracing import Traced

BESIDE = 32  # threads beside those that answer: for keys that are looked at, files that come, and the catalog
ROUTERS = (
    operations.router,
    models.router,
    completions.router,
    embeddings.router,
    conversations.router,
    questions.router,
    caches.router,
    collections.router,
    documents.router,
    first_steps.router,
    pages.router,
    kv_cache.router,
    cache_budgets.router,
    cache_effects.router,
    cache_history.router,
    jobs.router,
    shown_settings.router,
)


def create_app(service: Service) -> FastAPI:
    """Starts the service with itself, and closes it at its end."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(service.settings.serve_concurrent + BESIDE))
        service.start()
        try:
            yield
        finally:
            await in_thread(service.close)

    app = FastAPI(
        title="RAGCache",
        version=version("ragcache-kv"),
        lifespan=lifespan,
        docs_url=None,  # pages that load their scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,  # it would send clients to whatever host their heads name
        responses={"4XX": {"model": ProblemBody}, "5XX": {"model": ProblemBody}},
    )
    app.state.service = service
    _protect(app, service)
    tell_problems(app)
    for router in ROUTERS:
        app.include_router(router)
    return app


def _protect(app: FastAPI, service: Service) -> None:
    """What a request goes through before its route; the last one here is the first."""
    settings = service.settings
    upload_bytes = sendable_bytes(settings.serve_upload_bytes)
    app.add_middleware(BodyLimits, body_bytes=settings.serve_body_bytes, upload_bytes=upload_bytes)
    app.add_middleware(Gate, service=service)
    app.add_middleware(TurnsEnd)
    if service.traces is not None:
        app.add_middleware(Traced, traces=service.traces)
    if service.origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=sorted(service.origins), allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(Observed, metrics=service.metrics)
