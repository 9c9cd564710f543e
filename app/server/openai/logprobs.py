"""How likely the tokens of an answer were, as OpenAI tells it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from app.answering.stream import AnswerToken

Decode = Callable[[Sequence[int]], str]
LEAST = -9999.0  # JSON has no infinity


class TokenTexts:
    """The texts of single tokens, each decoded once: those that could have stood at one place come again at the next.
    One for each request, and it grows to the vocabulary at most.
    """

    def __init__(self, decode: Decode):
        self._decode = decode
        self._texts: dict[int, str] = {}

    def text(self, token: int) -> str:
        if token not in self._texts:
            self._texts[token] = self._decode([token])
        return self._texts[token]


def chat_logprobs(tokens: Sequence[AnswerToken], texts: TokenTexts) -> dict[str, Any]:
    """The values of ChatLogprobs."""
    content = []
    for one in tokens:
        assert one.told is not None
        top = [_told(token, logprob, texts) for token, logprob in one.told.top]
        content.append({**_told(one.token, one.told.logprob, texts), "top_logprobs": top})
    return {"content": content}


def completion_logprobs(tokens: Sequence[AnswerToken], texts: TokenTexts) -> dict[str, Any]:
    """The values of CompletionLogprobs."""
    found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for one in tokens:
        assert one.told is not None
        found["tokens"].append(texts.text(one.token))
        found["token_logprobs"].append(max(one.told.logprob, LEAST))
        found["top_logprobs"].append({texts.text(token): max(value, LEAST) for token, value in one.told.top})
        found["text_offset"].append(one.start)
    return found


def _told(token: int, logprob: float, texts: TokenTexts) -> dict[str, Any]:
    text = texts.text(token)
    return {"token": text, "logprob": max(logprob, LEAST), "bytes": list(text.encode("utf-8", "replace"))}
