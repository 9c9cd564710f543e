"""From logits to the next token. The order of what is done to them is vLLM's, so both engines answer alike."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ragcache.sampling import Sampling, TokenLogprobs

LIKELY = 1024  # tokens that nearly always hold the share of top-p: to sort all takes as long as much of a decode step


class Sampler:
    """One answer's random state, and what it has said so far: the same seed gives the same answer."""

    def __init__(self, sampling: Sampling, prompt: Sequence[int] = ()):
        self._sampling = sampling
        self._prompt = prompt
        self._counts: torch.Tensor | None = None  # [vocabulary], of the answer
        self._known: torch.Tensor | None = None  # [vocabulary], whether prompt or answer has it
        self._biased: tuple[torch.Tensor, torch.Tensor] | None = None  # tokens and what is added to each
        self._generator = torch.Generator()
        if sampling.seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(sampling.seed)

    def choose(self, logits: torch.Tensor) -> int:
        """logits [vocabulary] -> token. They stay as they are."""
        token = self._chosen(self._changed(logits))
        if self._counts is not None and self._known is not None:
            self._counts[token] += 1
            self._known[token] = True
        return token

    def _chosen(self, logits: torch.Tensor) -> int:
        if self._sampling.temperature == 0:
            return int(logits.argmax())
        above = logits.cpu().double() - float(logits.max())  # so that no temperature, however low, overflows
        kept = _keep(torch.softmax(above / self._sampling.temperature, -1), self._sampling)
        return int(torch.multinomial(kept, 1, generator=self._generator))

    def _changed(self, logits: torch.Tensor) -> torch.Tensor:
        """With biases and penalties. [vocabulary]"""
        asked = self._sampling
        if not (asked.logit_bias or asked.penalises):
            return logits
        logits = logits.clone()
        if asked.logit_bias:
            tokens, values = self._bias(logits)
            logits[tokens] += values
        if asked.penalises:
            counts, known = self._said(logits)
            factor = torch.where(logits > 0, 1 / asked.repetition_penalty, asked.repetition_penalty)
            logits = torch.where(known, logits * factor, logits)
            logits -= asked.frequency_penalty * counts
            logits -= asked.presence_penalty * (counts > 0)
        return logits

    def _bias(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._biased is None:
            tokens, values = zip(*self._sampling.logit_bias, strict=True)
            added = torch.tensor(values, dtype=logits.dtype, device=logits.device)
            self._biased = torch.tensor(tokens, device=logits.device), added
        return self._biased

    def _said(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self._counts is None or self._known is None:
            self._counts, self._known = torch.zeros_like(logits), torch.zeros_like(logits, dtype=torch.bool)
            self._known[torch.tensor(self._prompt, dtype=torch.long, device=logits.device)] = True
        return self._counts, self._known


def token_logprobs(logits: torch.Tensor, token: int, count: int) -> TokenLogprobs:
    """Of the model's own distribution. logits [vocabulary]"""
    logprobs = torch.log_softmax(logits.float(), -1)
    best = logprobs.topk(min(count, len(logprobs)))
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True))
    return TokenLogprobs(token, float(logprobs[token]), top)


def _keep(probabilities: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Zero what min-p, top-k and top-p leave out, each of what the one before it leaves, as in vLLM; multinomial needs
    no sum of 1. [vocabulary]
    """
    if sampling.min_p:
        probabilities = probabilities.masked_fill(probabilities < sampling.min_p * probabilities.max(), 0.0)
    if sampling.top_k:
        best = probabilities.topk(min(sampling.top_k, len(probabilities)))
        probabilities = torch.zeros_like(probabilities).scatter_(0, best.indices, best.values)
    if sampling.top_p == 1.0:
        return probabilities
    share = sampling.top_p * probabilities.sum()
    ordered, order = probabilities.topk(min(LIKELY, len(probabilities)))
    if ordered.sum() < share:
        ordered, order = probabilities.sort(descending=True)
    out = ordered.cumsum(-1) - ordered >= share  # the token that crosses the share is still kept
    return torch.zeros_like(probabilities).scatter_(0, order, ordered.masked_fill(out, 0.0))
