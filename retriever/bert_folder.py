"""An embedding model of the BERT kind, read from its files alone: the library takes seconds to import.

Whatever these files say that is not known here, down to a key of a configuration, leaves the model to the library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import nn

from retriever.packing import packs

GELU: Mapping[str, str] = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}  # as oneDNN calls them
MEAN, FIRST = "mean", "cls"
_PARTS = ["Transformer", "Pooling", "Normalize"]
# What may stand in each file: keys whose values are checked below, and those that change no vector.
_CONFIG = {
    "architectures", "hidden_act", "hidden_size", "intermediate_size", "layer_norm_eps", "max_position_embeddings",
    "model_type", "num_attention_heads", "num_hidden_layers", "pad_token_id", "position_embedding_type",
    "type_vocab_size", "vocab_size",
    "_name_or_path", "attention_probs_dropout_prob", "classifier_dropout", "gradient_checkpointing",
    "hidden_dropout_prob", "initializer_range", "transformers_version", "use_cache",
}  # fmt: skip
_TOKENIZER = {
    "do_lower_case", "strip_accents", "tokenize_chinese_chars", "tokenizer_class", "unk_token", "sep_token",
    "pad_token", "cls_token", "mask_token",
    "name_or_path", "do_basic_tokenize", "never_split", "model_max_length", "special_tokens_map_file",
}  # fmt: skip
_SPECIAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}
_POOLING = {
    "word_embedding_dimension", "pooling_mode_cls_token", "pooling_mode_mean_tokens", "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
}  # fmt: skip
_IGNORED = ("pooler.", "embeddings.position_ids")  # weights that no vector is made of


class _Unusual(Exception):
    """Something that only the library knows how to read."""


class _Part(nn.Module):
    """One of the parts that the library makes a model of, with the names that it gives."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        for name, value in values.items():
            setattr(self, name, value)


class BertFolder(nn.Sequential):
    """It has what retriever/bert.py asks of a model of the library, and no forward."""

    def __init__(
        self, bert: nn.Module, dimension: int, pooling: str, tokenizer: Tokenizer, length: int, prompts: dict[str, str]
    ) -> None:
        super().__init__(_Part(model=bert), _Part(pooling_mode=pooling))
        self.tokenizer = SimpleNamespace(backend_tokenizer=tokenizer, pad_token_id=tokenizer.token_to_id("[PAD]"))
        self.max_seq_length = length
        self.prompts = prompts
        self.default_prompt_name: str | None = None
        self._dimension = dimension

    def get_embedding_dimension(self) -> int:
        return self._dimension


def read_bert(folder: Path) -> BertFolder | None:
    """On the CPU, in float32. None for a folder that has to be read by the library, which also tells what is wrong."""
    try:
        config = _read(folder / "config.json", _CONFIG)
        _expect(config["model_type"] == "bert" and config["architectures"] == ["BertModel"])
        _expect(config["hidden_act"] in GELU and config.get("position_embedding_type", "absolute") == "absolute")
        pooling = _pooling(folder, config["hidden_size"])
        length, prompts = _reading(folder, config["max_position_embeddings"])
        bert = _bert(config)
        _fill(bert, load_file(folder / "model.safetensors"))
        _expect(packs(bert))
        return BertFolder(bert, config["hidden_size"], pooling, _tokenizer(folder), length, prompts)
    except (_Unusual, OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError):
        return None


def _read(path: Path, known: Set[str]) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    _expect(values.keys() <= known)
    return values


def _expect(usual: bool) -> None:
    if not usual:
        raise _Unusual


def _pooling(folder: Path, dimension: int) -> str:
    parts = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    names = [f"sentence_transformers.models.{name}" for name in _PARTS]
    _expect([part["type"] for part in parts] in (names, names[:2]) and parts[0]["path"] == "")
    config = _read(folder / parts[1]["path"] / "config.json", _POOLING)
    _expect(config.pop("word_embedding_dimension") == dimension)
    modes = {"pooling_mode_mean_tokens": MEAN, "pooling_mode_cls_token": FIRST}
    (chosen,) = (name for name, wanted in config.items() if wanted)
    return modes[chosen]


def _reading(folder: Path, most: int) -> tuple[int, dict[str, str]]:
    """How many tokens of a text are read, and what is put in front of it."""
    config = _read(folder / "sentence_bert_config.json", {"max_seq_length", "do_lower_case"})
    length = config["max_seq_length"]
    _expect(type(length) is int and 2 < length <= most and not config.get("do_lower_case", False))
    known = {"__version__", "prompts", "default_prompt_name", "similarity_fn_name"}
    more = _read(folder / "config_sentence_transformers.json", known)
    _expect(more.get("default_prompt_name") is None)
    return length, {str(name): str(prompt) for name, prompt in more.get("prompts", {}).items()}


def _tokenizer(folder: Path) -> Tokenizer:
    config = _read(folder / "tokenizer_config.json", _TOKENIZER)
    _expect(config["tokenizer_class"] in ("BertTokenizer", "BertTokenizerFast"))
    _expect({value for name, value in config.items() if name.endswith("_token")} <= _SPECIAL)
    _expect(not (folder / "added_tokens.json").exists())
    written = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    # The library lets the settings win over the file; here they must agree.
    _expect(
        written["normalizer"]
        == {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": config.get("tokenize_chinese_chars", True),
            "strip_accents": config.get("strip_accents"),
            "lowercase": config.get("do_lower_case", True),
        }
    )
    _expect(written["model"]["type"] == "WordPiece" and written["post_processor"]["type"] == "TemplateProcessing")
    added = written["added_tokens"]
    _expect({token["content"] for token in added} == _SPECIAL and all(token["special"] for token in added))
    tokenizer: Tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return tokenizer


def _bert(config: Mapping[str, Any]) -> nn.Module:
    """The modules that hold the weights, under the names that the weights have."""
    width, inner, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    _expect(width % heads == 0)

    def norm() -> nn.LayerNorm:
        return nn.LayerNorm(width, eps=config["layer_norm_eps"])

    def embedding(size: str) -> nn.Embedding:
        # By itself it draws random weights, for which torch imports its compiler.
        return nn.Embedding(config[size], width, _weight=torch.empty(config[size], width))

    def layer() -> nn.Module:
        own = _Part(**{name: nn.Linear(width, width) for name in ("query", "key", "value")}, num_attention_heads=heads)
        out = _Part(dense=nn.Linear(width, width), LayerNorm=norm())
        attention = _Part(output=out)
        attention.add_module("self", own)
        return _Part(
            attention=attention,
            intermediate=_Part(dense=nn.Linear(width, inner)),
            output=_Part(dense=nn.Linear(inner, width), LayerNorm=norm()),
        )

    with torch.device("meta"):
        return _Part(
            embeddings=_Part(
                word_embeddings=embedding("vocab_size"),
                token_type_embeddings=embedding("type_vocab_size"),
                position_embeddings=embedding("max_position_embeddings"),
                LayerNorm=norm(),
            ),
            encoder=_Part(layer=nn.ModuleList(layer() for _ in range(config["num_hidden_layers"]))),
            config=SimpleNamespace(hidden_act=config["hidden_act"]),
        )


def _fill(bert: nn.Module, weights: dict[str, torch.Tensor]) -> None:
    used = {name: weight for name, weight in weights.items() if not name.startswith(_IGNORED)}
    _expect(all(weight.dtype == torch.float32 for weight in used.values()))
    bert.load_state_dict(used, assign=True)  # raises RuntimeError where one is missing, or of another shape
    bert.requires_grad_(False).eval()
