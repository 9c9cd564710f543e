"""A model's tokenizer, and what its chat template writes around texts, as they were recorded: without transformers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Tokenizer

IDS = ("eos_token_id", "unk_token_id")


@dataclass(frozen=True)
class Frame:
    """The strings around the system prompt, around the user's text, and between the turns of a conversation.

    Where the template knows no turns, those that went before are told in plain text inside the user's.
    """

    before_system: str
    after_system: str
    after_user: str  # up to where the answer starts
    after_answer: str = ""  # what ends an answer
    to_answer: str = "\nAnswer:"  # from an earlier question to its answer
    gap: str = " "  # in front of that answer, a part of its own text
    to_user: str = "\n\n"  # from that answer to the next question


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


def _backend(text: str) -> Tokenizer:
    json.loads(text)  # for anything else the library raises no narrower kind than Exception
    backend: Tokenizer = Tokenizer.from_str(text)
    backend.no_truncation()
    backend.no_padding()
    return backend


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
