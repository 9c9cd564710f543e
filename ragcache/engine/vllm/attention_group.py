"""How rows of ours attend: by metadata that is built beside vLLM's own, for a forward between two of its."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from vllm.config import CUDAGraphMode


def own_group(group: Any, config: Any, device: torch.device, kernel_block: int | None) -> Any:
    """The same layers, with a builder of metadata of our own: a builder keeps what its last forward attends by (for
    captured graphs FlashAttention a schedule, FlashInfer a plan), and our pass runs when vLLM's forward has been
    described and has not run. It captures no graph. What backends only scribble in they share.
    """
    own = replace(group, metadata_builders=[], kernel_block_table=None, kernel_block_offsets=None)
    own.create_metadata_builders(_without_graphs(config), device, kernel_block)
    (builder,), theirs = own.metadata_builders, group.metadata_builders[0]
    if hasattr(builder, "set_workspace_buffer"):
        builder.set_workspace_buffer(theirs._get_workspace_buffer())
    return own


def _without_graphs(config: Any) -> Any:
    plain = copy(config)
    plain.compilation_config = copy(config.compilation_config)
    plain.compilation_config.cudagraph_mode = CUDAGraphMode.NONE
    return plain


def kernel_block_size(runner: Any) -> int | None:
    """Model runners V1 and V2 keep it under two names."""
    sizes = getattr(runner, "kernel_block_sizes", None) or getattr(runner, "_kernel_block_sizes", None)
    return int(sizes[0]) if sizes else None
