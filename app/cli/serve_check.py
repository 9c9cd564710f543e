"""What `ragcache serve` needs, looked at without loading a model."""

from __future__ import annotations

import tempfile
from importlib import metadata

from app.cli.doctor import check_cache_folder, check_disk, check_embedder, check_model, check_strategies
from app.cli.findings import Check, Finding, examine
from app.client.amounts import count
from app.library.catalog import catalog_to_look_at
from app.library.folder_claim import claimed_by_another
from app.models.vllm import check_served, check_vllm
from app.server.process import bound
from app.settings import Settings, variable
from ragcache.errors import ConfigError
from ragcache.host import private_folder

ENGINES = {"vllm": check_vllm, "vllm-server": check_served}
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_host(settings: Settings, name: str = "serve_host") -> None:
    """Raises ConfigError where other machines may come, and nobody has a key."""
    host = getattr(settings, name)
    if host in LOOPBACK:
        return
    with catalog_to_look_at(settings) as catalog:
        if not catalog.keys.any():
            raise ConfigError(
                f"{variable(name)}={host!r} is open to other machines, and there is no key: "
                "make one by `ragcache keys create`, or serve on 127.0.0.1"
            )


def check_address(settings: Settings) -> list[Finding]:
    for sock in bound(settings.serve_host, settings.serve_port):
        sock.close()
    return [Finding("address", True, f"{settings.serve_host} port {settings.serve_port} is free")]


def check_keys(settings: Settings) -> list[Finding]:
    check_host(settings)
    with catalog_to_look_at(settings) as catalog:
        found = catalog.keys.all()
    if not found:
        return [Finding("keys", True, "none: programs of this machine alone are answered, and need none")]
    return [Finding("keys", True, f"{count(len(found), 'key')}: whoever asks needs one")]


def check_data_folder(settings: Settings) -> list[Finding]:
    folder = settings.data_dir
    try:
        private_folder(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        return [Finding("data folder", False, f"cannot write in {folder}: {error}; set {variable('data_dir')}")]
    if other := claimed_by_another(settings):
        told = f"{folder} has the files of the catalog {other}"
        return [Finding("data folder", False, f"{told}; set another {variable('data_dir')}")]
    return [Finding("data folder", True, f"{folder} is writable")]


def check_catalog(settings: Settings) -> list[Finding]:
    with catalog_to_look_at(settings) as catalog:
        return [Finding("catalog", True, f"{count(len(catalog.collections.all()), 'collection')} can be read")]


def check_engine_installed(settings: Settings) -> list[Finding]:
    return [Finding("engine", True, f"{settings.engine} {ENGINES.get(settings.engine, _torch)(settings)}")]


def _torch(settings: Settings) -> str:
    return metadata.version("torch")


CHECKS: tuple[Check, ...] = (
    check_address,
    check_keys,
    check_data_folder,
    check_cache_folder,
    check_disk,
    check_catalog,
    check_engine_installed,
    check_model,
    check_embedder,
    check_strategies,
)


def examine_server(settings: Settings) -> list[Finding]:
    return examine(settings, CHECKS)
