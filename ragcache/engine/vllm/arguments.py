"""How vLLM is set up inside this process, and what it made of the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from vllm.config import KVTransferConfig
from vllm.config.logging import LoggingConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.platforms import current_platform

from ragcache.engine import EngineSpec, end_tokens
from ragcache.engine.vllm.checks import WORKER
from ragcache.engine.vllm.setup import model_fingerprint

# Of each token that is measured: by the 20 likeliest, half of a small model's divergence is seen, by these most of it.
MEASURED_LOGPROBS = 1000


def engine_arguments(folder: Path, dtype: torch.dtype, linking: dict[str, Any], options: dict[str, Any]) -> EngineArgs:
    transfer = KVTransferConfig(
        kv_connector="RagcacheConnector",
        kv_connector_module_path="ragcache.engine.vllm.connector",
        kv_role="kv_both",
        kv_load_failure_policy="recompute",
        kv_connector_extra_config={"ram_bytes": 1, **linking},  # our store takes the place of its own
    )
    own = {
        "model": str(folder),
        "dtype": str(dtype).removeprefix("torch."),
        "skip_tokenizer_init": True,
        "disable_log_stats": True,
        "max_logprobs": MEASURED_LOGPROBS,
        "use_tqdm_on_load": False,
        # What vLLM logs goes where the application's log goes; its own set-up would write to stdout.
        "logging_config": LoggingConfig(configure_logging=False, pylogging_config_file=None),
        "worker_cls": WORKER,
        "kv_transfer_config": transfer,
    }
    if current_platform.is_cpu():
        # Span forwards run uncompiled: with vLLM's own kernels for norms and activations they take a tenth less.
        own["compilation_config"] = {"custom_ops": ["all"]}
    return EngineArgs(**{**own, **options})


def engine_spec(config: Any) -> EngineSpec:
    model = config.model_config
    eos = model.try_get_generation_config().get("eos_token_id", getattr(model.hf_text_config, "eos_token_id", None))
    return EngineSpec(
        fingerprint=model_fingerprint(config),
        layers=int(model.hf_text_config.num_hidden_layers),
        kv_heads=int(model.get_total_num_kv_heads()),
        head_dim=int(model.get_head_size()),
        dtype=model.dtype,
        device=torch.device(config.device_config.device),
        max_tokens=int(model.max_model_len),
        vocabulary=int(model.get_vocab_size()),
        eos=end_tokens(eos),
    )
