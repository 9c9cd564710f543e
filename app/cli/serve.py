"""`ragcache serve`: answers over documents, by OpenAI's API."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from app.cli.flags import configured
from app.cli.serve_check import check_host, examine_server
from app.library.folder_claim import claim
from app.models.vllm import check_vllm
from app.server.memory import bound_libraries
from app.server.process import ServerProcess, bound
from app.server.service import Service
from app.server.web import create_app
from app.settings import Settings
from ragcache.errors import ConfigError


@configured("serve_host", "serve_port", ..., "engine", "model", "device", "dtype", "cache_dir", "data_dir")
def serve(
    settings: Settings,
    check: Annotated[bool, typer.Option("--check", help="Look whether the configuration can serve, and end.")] = False,
) -> None:
    """Serve the collections by OpenAI's API, to programs of this machine alone unless there are keys."""
    bound_libraries()
    settings = _with_engine(settings)
    if check:
        findings = examine_server(settings)
        for finding in findings:
            print(f"{'✓' if finding.ok else '✗'} {finding.name}: {finding.detail}")
        raise typer.Exit(0 if all(finding.ok for finding in findings) else 1)
    check_host(settings)
    claim(settings)
    sockets = bound(settings.serve_host, settings.serve_port)
    service = Service(settings)
    host, port = settings.serve_host, sockets[0].getsockname()[1]
    where = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"{service.model} on {settings.engine} · {where}/v1 · Ctrl-C ends it", file=sys.stderr, flush=True)
    ServerProcess(create_app(service), service.turns, settings.serve_grace_s).run(sockets=sockets)


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
