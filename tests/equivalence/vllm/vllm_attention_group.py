"""Metadata of attention: ours is built beside vLLM's, which its next forward goes by."""

from __future__ import annotations

from copy import copy
from types import SimpleNamespace
from typing import Any

import torch
from vllm.config import CUDAGraphMode
from vllm.v1.worker.utils import AttentionGroup

from ragcache.engine.vllm.attention_group import own_group
from ragcache.engine.vllm.checks import only_group
from tests.equivalence.vllm.conftest import OpenPair


class KeepingBuilder:
    """As those of GPUs do for captured graphs: the next forward attends by what lies in its buffer."""

    requires_block_table_width = False

    def __init__(self, spec: Any, names: list[str], config: Any, device: torch.device):
        self.graphs = config.compilation_config.cudagraph_mode.has_full_cudagraphs()
        self.kept, self.workspace = torch.zeros(8, dtype=torch.int32), torch.zeros(1)

    def build(self, common_prefix: int, common: Any) -> torch.Tensor:
        self.kept[: len(common.seq_lens)] = common.seq_lens
        return self.kept

    def _get_workspace_buffer(self) -> torch.Tensor:
        return self.workspace

    def set_workspace_buffer(self, buffer: torch.Tensor) -> None:
        self.workspace = buffer


class KeepingBackend:
    @staticmethod
    def get_builder_cls() -> type[KeepingBuilder]:
        return KeepingBuilder


def test_a_pass_leaves_what_vllms_forward_attends_by(open_pair: OpenPair) -> None:
    """It runs when that has been described, and has not run."""
    with open_pair() as pair:
        check_apart(pair.engine._worker.spans)


def check_apart(spans: Any) -> None:
    plain = only_group(spans._runner)
    config, compilation = copy(spans.config), copy(spans.config.compilation_config)
    config.compilation_config, compilation.cudagraph_mode = compilation, CUDAGraphMode.FULL
    theirs = AttentionGroup(KeepingBackend, plain.layer_names, plain.kv_cache_spec, 0)  # type: ignore[arg-type]
    theirs.create_metadata_builders(config, spans.device)
    ours = own_group(theirs, config, spans.device, None)
    described = theirs.build_metadata(SimpleNamespace(seq_lens=torch.tensor([101, 102, 103], dtype=torch.int32)))  # type: ignore[arg-type]
    before = described.clone()
    ours.build_metadata(SimpleNamespace(seq_lens=torch.tensor([40, 90], dtype=torch.int32)))
    assert torch.equal(described, before)
    (builder,), (their,) = ours.metadata_builders, theirs.metadata_builders
    assert (their.graphs, builder.graphs) == (True, False), "none of ours is captured"
    assert builder.workspace is their.workspace, "hundreds of megabytes that nobody keeps anything in"
    assert config.compilation_config.cudagraph_mode is CUDAGraphMode.FULL
    assert spans._group.metadata_builders[0] is not plain.metadata_builders[0]
