"""`ragcache serve`: answers over documents, by OpenAI's API."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
import uvicorn

from app.cli.flags import configured
from app.models.vllm import check_vllm
from app.server.service import Service
from app.server.web import create_app
from app.settings import Settings
from ragcache.errors import ConfigError

GRACE_S = 30  # for streams that are under way when the server is told to end
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@configured("serve_host", "serve_port", ..., "engine", "model", "device", "dtype", "cache_dir", "data_dir")
def serve(
    settings: Settings,
    check: Annotated[bool, typer.Option("--check", help="Look whether the configuration can serve, and end.")] = False,
) -> None:
    """Serve the collections by OpenAI's API, to programs of this machine alone unless there are keys."""
    _check_host(settings)
    service = Service(_with_engine(settings))
    if check:
        service.close()
        print("This configuration can serve.", file=sys.stderr)
        return
    where = f"http://{settings.serve_host}:{settings.serve_port}"
    print(f"{service.model} on {service.settings.engine} · {where}/v1 · Ctrl-C ends it", file=sys.stderr)
    uvicorn.run(
        create_app(service),
        host=settings.serve_host,
        port=settings.serve_port,
        log_config=None,
        timeout_graceful_shutdown=GRACE_S,
        server_header=False,
    )


def _with_engine(settings: Settings) -> Settings:
    """vLLM where nobody chose, and it is there: it answers many at once."""
    if "engine" in settings.model_fields_set:
        return settings
    chosen = settings.model_copy(update={"engine": "vllm"})
    try:
        check_vllm(chosen)
    except ConfigError:
        return settings
    return chosen


def _check_host(settings: Settings) -> None:
    if settings.serve_host not in LOOPBACK:
        raise ConfigError(
            f"RAGCACHE_SERVE_HOST={settings.serve_host!r} is open to other machines, and there is no key: make one by "
            "`ragcache keys create`, or serve on 127.0.0.1"
        )
