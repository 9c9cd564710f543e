"""How likely the tokens of an answer were, as OpenAI tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.answering.stream import AnswerToken

LEAST = -9999.0  # JSON has no infinity


@dataclass(frozen=True)
class TokenName:
    """`text` is that of the bytes, or names them where they are a part of a character."""

    text: str
    bytes: list[int]


class TokenNames:
    """Of single tokens, each made once: those that could have stood at one place come again at the next. One for each
    request, and it grows to the vocabulary at most.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]):
        self._bytes_of = bytes_of
        self._names: dict[int, TokenName] = {}

    def of(self, token: int) -> TokenName:
        if token not in self._names:
            self._names[token] = _name(self._bytes_of(token))
        return self._names[token]


def _name(own: bytes) -> TokenName:
    try:
        return TokenName(own.decode(), list(own))
    except UnicodeDecodeError:
        return TokenName("bytes:" + "".join(f"\\x{byte:02x}" for byte in own), list(own))


def chat_logprobs(tokens: Sequence[AnswerToken], names: TokenNames) -> dict[str, Any]:
    """The values of ChatLogprobs."""
    content = []
    for one in tokens:
        assert one.told is not None
        top = [_told(token, logprob, names) for token, logprob in one.told.top]
        content.append({**_told(one.token, one.told.logprob, names), "top_logprobs": top})
    return {"content": content}


def completion_logprobs(tokens: Sequence[AnswerToken], names: TokenNames) -> dict[str, Any]:
    """The values of CompletionLogprobs."""
    found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in tokens:
        assert one.told is not None
        found["tokens"].append(names.of(one.token).text)
        found["token_logprobs"].append(max(one.told.logprob, LEAST))
        found["top_logprobs"].append({names.of(token).text: max(value, LEAST) for token, value in one.told.top})
        found["text_offset"].append(one.start)
    return found


def _told(token: int, logprob: float, names: TokenNames) -> dict[str, Any]:
    name = names.of(token)
    return {"token": name.text, "logprob": max(logprob, LEAST), "bytes": name.bytes}
