"""Choices of one prompt: it is computed once for all of them, on the torch engine, and counts once."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from app import Settings
from app.server.service import model_name
from ragcache.engine.torch import generation

CHAT = {"messages": [{"role": "user", "content": "Who designed the lighthouse, and when?"}]}
LONG = "The keeper of the lighthouse wrote down each evening what the sea had been like. "
COMPLETION = {"prompt": [LONG + "He", LONG + "She"]}


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of each prompt that was."""
    tokens, prefill = list[int](), generation.prefill

    def counted(*of: Any) -> Any:
        made = prefill(*of)
        tokens.append(made.length)
        return made

    monkeypatch.setattr(generation, "prefill", counted)
    return tokens


@pytest.mark.parametrize(
    ("path", "collection", "body", "prompts"),
    [
        ("chat/completions", "", CHAT, 1),
        ("chat/completions", "@default", CHAT, 1),
        ("completions", "", COMPLETION, 2),
    ],
)
def test_choices_are_what_each_is_alone(
    client: httpx2.Client,
    sampled: Settings,
    computed: list[int],
    path: str,
    collection: str,
    body: dict[str, Any],
    prompts: int,
) -> None:
    asked = {"model": model_name(sampled.model) + collection, "max_tokens": 6, "temperature": 1.0, **body}

    def told(**more: Any) -> tuple[list[str], dict[str, Any]]:
        found = client.post(f"/v1/{path}", json={**asked, **more})
        assert found.status_code == 200, found.text
        answer = found.json()
        texts = [one["message"]["content"] if "message" in one else one["text"] for one in answer["choices"]]
        return texts, answer["usage"]

    alone = [told(seed=seed) for seed in (5, 6, 7)]
    computed.clear()
    texts, usage = told(seed=5, n=3)
    assert len(computed) == prompts
    assert usage["prompt_tokens"] == sum(computed) == alone[0][1]["prompt_tokens"]
    assert usage["prompt_tokens_details"]["cached_tokens"] < usage["prompt_tokens"], "as the first of them found it"
    if not collection:  # over documents what is kept behind an answer changes the next one, if there is time for it
        assert texts == [one for place in range(prompts) for one in [found[place] for found, _ in alone]]
        assert usage["completion_tokens"] == sum(one["completion_tokens"] for _, one in alone)
