"""From vLLM's configuration to ours: `kv_connector_extra_config` holds the store's folder and the linker's settings.

{"store": "/data/kv", "ram_bytes": 4000000000, "disk_bytes": null, "codec": "bf16", "eviction": "value", …}
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vllm.platforms import current_platform

from ragcache.engine.fingerprint import (
    INDEX,
    IRRELEVANT,
    Digests,
    folder_fingerprint,
    indexed,
    model_state,
    weight_files,
)
from ragcache.engine.vllm.budget import LinkSettings
from ragcache.engine.vllm.checks import refuse
from ragcache.engine.vllm.link_scheduler import LinkScheduler
from ragcache.engine.vllm.plans import Stepping
from ragcache.errors import ConfigError, ModelError
from ragcache.store import open_store
from ragcache.store.base import KVStore
from ragcache.store.defaults import RAM_BYTES
from ragcache.types import KVForm

# Names of open_store for what is its own to check, and to have a default of.
PASSED_ON = {name: name for name in ("disk_bytes", "codec", "remote", "remote_bytes", "variants")} | {
    "eviction": "order"
}
STORE_KEYS = {"store", "ram_bytes", "digests", *PASSED_ON}


@dataclass(frozen=True)
class Setup:
    """What both sides of the connector need; made by each for itself."""

    vllm_config: Any
    extra: dict[str, Any]
    settings: LinkSettings
    block: int
    hash_block: int  # tokens per block hash

    @property
    def ranks(self) -> int:
        return int(self.vllm_config.parallel_config.tensor_parallel_size)

    @property
    def layers(self) -> int:
        return int(self.vllm_config.model_config.hf_text_config.num_hidden_layers)

    def worker_store(self, rank: int) -> KVStore:
        """Its share of the RAM, for its own heads; null in the configuration is no limit. All share the folder."""
        ram = self.extra.get("ram_bytes", RAM_BYTES)
        heads = None if self.ranks == 1 else self.heads(rank)
        patience = self.settings.load_timeout_s / 2  # it has looked for nothing itself; a next variant has its time
        return self._store(None if ram is None else ram // self.ranks, heads, patience)

    def scheduler_store(self) -> KVStore:
        """It looks for what there is, and needs no KV of it. Without a folder there is nothing to be found."""
        return self._store(0 if self.extra.get("store") else 1)

    def _store(self, ram: int | None, heads: slice | None = None, patience_s: float | None = None) -> KVStore:
        root = self.extra.get("store")
        store = open_store(
            None if root is None else Path(root),
            ram_bytes=ram,
            heads=heads,
            remote_patience_s=patience_s,
            **{name: self.extra[key] for key, name in PASSED_ON.items() if key in self.extra},
        )
        model = self.vllm_config.model_config
        store.expect(KVForm(self.layers, int(model.get_total_num_kv_heads()), int(model.get_head_size())))
        return store

    def scheduler(self) -> LinkScheduler:
        return LinkScheduler(
            model_fingerprint(self.vllm_config),
            self.scheduler_store(),
            self.settings,
            ranks=self.ranks,
            layers=self.layers,
            token_bytes=self.token_bytes,
            steps=Stepping(
                pass_tokens=int(self.vllm_config.scheduler_config.max_num_batched_tokens),
                gpu=current_platform.is_cuda_alike(),
                ahead=bool(self.vllm_config.scheduler_config.async_scheduling),
            ),
        )

    @property
    def own_heads(self) -> int:
        """K/V heads of a rank."""
        return max(1, int(self.vllm_config.model_config.get_total_num_kv_heads()) // self.ranks)

    @property
    def token_bytes(self) -> int:
        """K and V of one token on one rank."""
        model = self.vllm_config.model_config
        return 2 * self.layers * self.own_heads * int(model.get_head_size()) * int(model.dtype.itemsize)

    def heads(self, rank: int) -> slice:
        """The K/V heads of a rank."""
        total = int(self.vllm_config.model_config.get_total_num_kv_heads())
        first = rank * total // self.ranks  # fewer heads than ranks: some hold the same
        return slice(first, first + self.own_heads)


def read_setup(vllm_config: Any, kv_cache_config: Any) -> Setup:
    """Raises ConfigError for what the connector cannot serve, with all reasons."""
    refuse(vllm_config, kv_cache_config)
    extra = dict(vllm_config.kv_transfer_config.kv_connector_extra_config)
    known = {field.name for field in fields(LinkSettings)} | STORE_KEYS
    unknown = sorted(set(extra) - known)
    if unknown:
        raise ConfigError(
            f"kv_connector_extra_config has unknown keys {unknown}: choose from {', '.join(sorted(known))}"
        )
    chosen = {name: value for name, value in extra.items() if name not in STORE_KEYS}
    block = int(kv_cache_config.kv_cache_groups[0].kv_cache_spec.block_size)
    hash_block = int(getattr(kv_cache_config, "hash_block_size", None) or block)
    return Setup(vllm_config, extra, LinkSettings(**chosen), block, hash_block)


def model_fingerprint(vllm_config: Any) -> str:
    """Of what vLLM runs; that of the torch engine over the same folder and number format, so that both share their
    caches. Raises ConfigError for weights that are not those of the folder, ModelError for a folder that is no model.
    """
    model, extra = vllm_config.model_config, vllm_config.kv_transfer_config.kv_connector_extra_config
    folder = Path(model.model)
    if not folder.is_dir():
        raise ConfigError(f"the model {str(folder)!r} is no local folder: caches are named by the bytes of its files")
    read = sorted(path.name for path in weight_files(folder))
    theirs = _files_of_vllm(folder, vllm_config.load_config.load_format)
    if read != theirs:
        raise ConfigError(
            f"vLLM reads {', '.join(theirs)} in {folder}, transformers {', '.join(read)}: move what is not the model's "
            "elsewhere, or KV would be named by other weights than it was computed with"
        )
    digests = extra.get("digests")
    return folder_fingerprint(folder, model.dtype, Digests(digests and Path(digests)), _changes(model, folder))


def files_of(vllm_config: Any) -> str:
    """Another one whenever the model's files are written. What is no model is refused where it is named."""
    try:
        return model_state(Path(vllm_config.model_config.model))
    except ModelError:
        return ""


def _files_of_vllm(folder: Path, load_format: str) -> list[str]:
    found = sorted(path.name for path in folder.glob("*.safetensors"))
    if load_format == "auto" and (own := [name for name in found if name.startswith("consolidated")]):
        return own  # Mistral's own format goes before others
    return indexed(folder) if (folder / INDEX).exists() else found


def _changes(model: Any, folder: Path) -> dict[str, Any]:
    """What vLLM's arguments change in the configuration (--hf-overrides, --hf-config-path and others), against what
    vLLM itself reads from the folder.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    from vllm.transformers_utils.config import get_config

    plain = get_config(str(folder), trust_remote_code=False, config_format="hf").to_dict()
    run = model.hf_config.to_dict()
    unset = object()
    names = (plain.keys() | run.keys()) - IRRELEVANT
    changes = {name: run.get(name) for name in names if plain.get(name, unset) != run.get(name, unset)}
    # The class that the configuration names is what vLLM runs, where transformers goes by the type of the model.
    usual = model.architecture == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(run.get("model_type"))
    return changes if usual else {**changes, "vllm_class": model.architecture}
