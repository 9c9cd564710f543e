"""A GGUF file read by transformers, which takes seconds to import."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging as talk

from ragcache.errors import ModelError


def convert(gguf: Path, folder: Path) -> None:
    """Write the model and its tokenizer in the formats that all else reads. Raises ModelError."""
    with _quiet():
        try:
            # Unless told to dequantise, transformers keeps the blocks packed and then cannot save the model.
            model = AutoModelForCausalLM.from_pretrained(
                gguf.parent,
                gguf_file=gguf.name,
                dtype=torch.bfloat16,
                quantization_config=GgufConfig(dequantize=True),
                local_files_only=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name, local_files_only=True)
        except (OSError, ValueError, KeyError, IndexError, struct.error) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise ModelError(f"cannot read {gguf}: {reason}; install its package again") from error
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config  # the weights are plain now
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


@contextmanager
def _quiet() -> Iterator[None]:
    """No warnings and progress bars of transformers inside; they are as they were afterwards."""
    verbosity, bars = talk.get_verbosity(), talk.is_progress_bar_enabled()
    talk.set_verbosity_error()
    talk.disable_progress_bar()
    try:
        with redirect_stderr(io.StringIO()):  # the GGUF reader draws a bar of its own that no switch turns off
            yield
    finally:
        talk.set_verbosity(verbosity)
        if bars:
            talk.enable_progress_bar()
