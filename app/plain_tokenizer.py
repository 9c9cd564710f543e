"""A model's tokenizer without transformers, whose import takes longer than an answer.

What transformers makes of a folder's files is recorded when it first reads them: the tokenizer itself, as it is then,
the special ids, and what the chat template writes. From then on the `tokenizers` library alone does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tokenizers import AddedToken, Tokenizer

from app.chat_frame import Frame, read_frame
from app.folders import records_of
from app.settings import Settings
from ragcache.errors import ModelError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KIND = "tokenizer"
IDS = ("eos_token_id", "unk_token_id")


class PlainTokenizer:
    """What prompts and splitters ask of a tokenizer, as transformers answers it."""

    is_fast = True

    def __init__(self, values: Mapping[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError for values that `recorded` has not made."""
        self.backend_tokenizer: Tokenizer = _backend(values["backend"])
        self.frame = Frame(**values["frame"])
        self.eos_token_id, self.unk_token_id = (_number(values[name]) for name in IDS)
        self.all_special_ids = [int(token) for token in values["all_special_ids"]]
        self.chat_template: str | None = values["chat_template"]

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        found: dict[int, AddedToken] = self.backend_tokenizer.get_added_tokens_decoder()
        return found

    def encode(self, text: str, **options: bool) -> list[int]:
        found: list[int] = self(text, **options)["input_ids"]
        return found

    def __call__(
        self,
        text: str,
        *,
        add_special_tokens: bool,
        split_special_tokens: bool,
        verbose: bool = False,
        return_offsets_mapping: bool = True,
    ) -> dict[str, Any]:
        if self.backend_tokenizer.encode_special_tokens != split_special_tokens:
            self.backend_tokenizer.encode_special_tokens = split_special_tokens
        found = self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens)
        return {"input_ids": found.ids, "offset_mapping": found.offsets}

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str:
        text: str = self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text


def open_tokenizer(settings: Settings, folder: Path) -> PreTrainedTokenizerBase:
    """Of a local model folder, for prompts and splitters; nothing is fetched. Raises ModelError."""
    from app.prompt import load_tokenizer

    records = records_of(settings)
    basis = records.basis(folder)
    if (values := records.read(KIND, folder)) is not None:
        try:
            return cast("PreTrainedTokenizerBase", PlainTokenizer(values))
        except (KeyError, TypeError, ValueError):
            pass  # it is read anew
    tokenizer = load_tokenizer(folder)
    if (values := recorded(tokenizer)) is not None:
        records.write(KIND, folder, values, basis)
    return tokenizer


def recorded(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any] | None:
    """None for one that does more than its backend, or whose chat template cannot be used."""
    from transformers import TokenizersBackend

    kind = type(tokenizer)
    own = [kind._encode_plus is TokenizersBackend._encode_plus, kind._decode is TokenizersBackend._decode]
    own += [kind.encode is TokenizersBackend.encode, kind.decode is TokenizersBackend.decode]
    own += [kind.__call__ is TokenizersBackend.__call__]
    if not isinstance(tokenizer, TokenizersBackend) or not all(own) or tokenizer.clean_up_tokenization_spaces:
        return None
    if tokenizer.chat_template is not None and not isinstance(tokenizer.chat_template, str):
        return None
    try:
        frame = read_frame(tokenizer)
    except ModelError:
        return None
    return {
        "backend": tokenizer.backend_tokenizer.to_str(),
        "frame": asdict(frame),
        "all_special_ids": tokenizer.all_special_ids,
        "chat_template": tokenizer.chat_template,
        **{name: getattr(tokenizer, name) for name in IDS},
    }


def _backend(text: str) -> Tokenizer:
    json.loads(text)  # for anything else the library raises no narrower kind than Exception
    backend: Tokenizer = Tokenizer.from_str(text)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
