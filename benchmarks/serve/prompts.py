"""What is asked: the same questions, in the same order, of every system."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.prompt import PromptTemplate
from app.wording import Wording
from benchmarks.corpus import sized_splitter
from benchmarks.load.arrivals import Popularity
from benchmarks.serve import ServeBenchOptions, ServeSystem
from ragcache.errors import ConfigError

SYSTEM = "Answer the question from the documents."
FRAME_TOKENS = 16  # about what a chat template writes around a message of the system and one of the user
BANNED = -100.0  # what OpenAI's logit_bias has at least

Number = tuple[int, ...]  # of a question: that of its case first


@dataclass(frozen=True)
class ServePassage:
    text: str
    tokens: int


@dataclass(frozen=True)
class PassageQuestion:
    """Passages, by their places in the population, and a text that nobody has sent before."""

    passages: tuple[int, ...]
    name: str
    rest: str


class ServeWorkload:
    """Threads may share it."""

    def __init__(self, template: PromptTemplate, texts: Sequence[str], options: ServeBenchOptions):
        """Raises ConfigError where there are too few passages for the prompts."""
        self._template, self._options = template, options
        self.passages: list[ServePassage] = [*_passages(template, texts, options)]
        self._words = [word for text in texts for word in text.split()]
        self._stop = sorted(template.stop)
        available, wanted = sum(one.tokens for one in self.passages), max(options.ccr) * options.tokens
        if available < wanted:
            raise ConfigError(
                f"the passages have {available:,} tokens, and {wanted:,.0f} of a prompt are to be passages: give more "
                "--data or --population, or fewer --tokens"
            )

    def question(self, ccr: float, number: Number) -> PassageQuestion:
        options = self._options
        name = ".".join(map(str, number))
        seed = (options.seed, *number)
        popularity = Popularity(len(self.passages), options.zipf, options.seed)
        (ranked,) = popularity.draw(1, len(self.passages), seed)
        chosen, left = [], ccr * options.tokens
        for place in ranked:
            if self.passages[place].tokens / 2 > left:
                break
            chosen.append(place)
            left -= self.passages[place].tokens
        others = sum(self.passages[place].tokens for place in chosen) + self._around(name)
        return PassageQuestion(tuple(chosen), name, self._words_of(options.tokens - others, str(seed)))

    def body(
        self, system: ServeSystem, model: str, caches: Sequence[str], question: PassageQuestion
    ) -> Mapping[str, Any]:
        """Of a request. The answer has a length that is known: nothing ends it before."""
        known = [*_parts(system, [self.passages[place].text for place in question.passages], caches, question.passages)]
        told = f"{SYSTEM} ({question.name})" if system.apart else SYSTEM
        asked = {"type": "text", "text": _asked(question.rest, question.name)}
        return {
            "model": model,
            "messages": [{"role": "system", "content": told}, {"role": "user", "content": [*known, asked]}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            "max_tokens": self._options.answer_tokens,
            "logit_bias": {str(token): BANNED for token in self._stop},
        }

    def _around(self, name: str) -> int:
        return self._template.count(SYSTEM) + self._template.count(_asked("", name)) + FRAME_TOKENS

    def _words_of(self, tokens: int, seed: str) -> str:
        """Words of the texts by lot, as many as have so many tokens; none where that is below one."""
        if tokens < 1:
            return ""
        words = " ".join(random.Random(seed).choices(self._words, k=tokens))
        return self._template.decode(self._template.tokens.ids(words)[:tokens])


def _passages(template: PromptTemplate, texts: Sequence[str], options: ServeBenchOptions) -> Iterator[ServePassage]:
    """Different ones. The rests at the ends of sections, which are shorter, are none."""
    splitter, least = sized_splitter(template, options.chunk_tokens), 3 * options.chunk_tokens // 4
    found: dict[str, ServePassage] = {}
    for text in texts:
        for piece in splitter.split(text):
            words = text[piece.start : piece.end].strip()
            tokens = len(template.chunk(words))
            if tokens >= least:
                found.setdefault(words, ServePassage(words, tokens))
    yield from list(found.values())[: options.population]


def _parts(
    system: ServeSystem, texts: Sequence[str], caches: Sequence[str], places: Sequence[int]
) -> Iterator[dict[str, str]]:
    for text, place in zip(texts, places, strict=True):
        if system.caches:
            yield {"type": "context_cache", "cache_id": caches[place]}
        else:  # as a chunk of ours has it
            yield {"type": "text", "text": f"{Wording.before_chunk}{text}{Wording.after_chunk}"}


def _asked(rest: str, name: str) -> str:
    return f"Note {name}: {rest}\n\nQuestion: What do these passages have in common?"
