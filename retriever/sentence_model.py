"""Models that embed and a cross-encoder, as sentence-transformers reads and runs them, whose import takes seconds."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Dense, Normalize, Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling
from transformers import BertModel, PreTrainedTokenizerBase
from transformers.utils import logging as talk

from retriever import FloatArray, RetrieverError
from retriever.bert import BertEncoder
from retriever.bert_folder import FIRST, GELU, MEAN
from retriever.encoder import IDS, Encoder, Row, batches, valid
from retriever.packing import near, pack, packs
from retriever.shared_property import shared_property

PROBE = ["What does the harbour master of the old town write down every evening?"]
PROBES = ["Who keeps the books of the harbour?", "Rye bread rests for a day before it is cut. " * 12, ""]
ADAPTER = "adapter_config.json"
TOLD = 4  # names of missing weights
SENTENCE = "sentence_embedding"  # the name under which the library gives what we want


def read_model(folder: Path, device: str = "cpu") -> SentenceTransformer:
    """Raises RetrieverError; nothing is fetched."""
    with loading("embedding", folder):
        return SentenceTransformer(str(folder), device=device, local_files_only=True).eval()


@contextmanager
def loading(kind: str, folder: Path) -> Iterator[None]:
    """Of a model, without progress bars. Raises RetrieverError for a folder that holds none."""
    bars = talk.is_progress_bar_enabled()
    talk.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise RetrieverError(f"cannot load the {kind} model in {folder}: {reason}") from error
    finally:
        if bars:
            talk.enable_progress_bar()


def make_encoder(model: SentenceTransformer) -> Encoder:
    """The quickest that gives the vectors that the library gives. The model belongs to the encoder from now on."""
    return as_bert(model) or LibraryEncoder(model)


def as_bert(model: SentenceTransformer) -> BertEncoder | None:
    """None for another model, or one whose vectors come out otherwise than the library's."""
    if not _fits(model):
        return None
    expected = _by_library(model)
    encoder = BertEncoder(model)
    with torch.inference_mode():
        ours = encoder.forward(encoder.tokenized(PROBES))
    return encoder if near(ours.to(expected.dtype), expected) else None


class LibraryEncoder(Encoder):
    """As sentence-transformers does it, with its weights packed where that can be."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__(model)
        self._model = model
        self._left_out = _left_out(model)
        self.tokenized(PROBE)  # what it sets of the tokenizer then stays so, whichever threads come first
        pack(model, lambda: self.forward(self.tokenized(PROBE)))

    def tokenized(self, texts: list[str]) -> list[Row]:
        found = self._model.tokenizer(texts, truncation=True, max_length=self._model.max_seq_length, padding=False)
        return [{name: rows[place] for name, rows in found.items()} for place in range(len(texts))]

    def length(self, text: str) -> int:
        # With the settings of `tokenized`: a tokenizer of the fast kind keeps them, and threads share it.
        found = self._model.tokenizer(
            [text], truncation=True, max_length=self._model.max_seq_length, return_overflowing_tokens=True
        )
        more: list[int] = found.get("num_truncated_tokens", [0])  # of one of the slow kind, which gives a single row
        rows: list[list[int]] = found[IDS]
        return sum(map(len, rows)) + max(0, *more)

    def forward(self, rows: Sequence[Row], prompt: str = "") -> torch.Tensor:
        padded = self._model.tokenizer.pad(list(rows), return_tensors="pt").to(self._model.device)
        found: dict[str, Any] = dict(padded)
        if prompt in self._left_out:
            found["prompt_length"] = self._left_out[prompt]
        vectors: torch.Tensor = self._model(found)[SENTENCE]
        return vectors


def _left_out(model: SentenceTransformer) -> dict[str, int]:
    """Tokens of the prompts that have no part in the vectors of the texts behind them."""
    if all(part.include_prompt for part in model.modules() if isinstance(part, Pooling)):
        return {}
    prompts = [prompt for prompt in model.prompts.values() if prompt]
    told: dict[str, Any] = {prompt: model.preprocess([""], prompt=prompt).get("prompt_length") for prompt in prompts}
    return {prompt: length for prompt, length in told.items() if length is not None}


def _fits(model: SentenceTransformer) -> bool:
    parts: list[Any] = list(model)
    if [type(part) for part in parts] not in ([Transformer, Pooling], [Transformer, Pooling, Normalize]):
        return False
    bert, pooling = parts[0].model, parts[1]
    return (
        type(bert) is BertModel
        and _is_plain(bert)
        and pooling.pooling_mode in (MEAN, FIRST)
        and (pooling.include_prompt or not any(model.prompts.values()))
        and _cuts_plainly(model, bert.config.max_position_embeddings)
    )


def _is_plain(bert: Any) -> bool:
    config = bert.config
    return (
        not config.is_decoder
        and config.hidden_act in GELU
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and packs(bert.encoder)
    )


def _cuts_plainly(model: SentenceTransformer, most: int) -> bool:
    tokenizer: Any = model.tokenizer
    sides = (tokenizer.padding_side, tokenizer.truncation_side) if tokenizer.is_fast else None
    return sides == ("right", "right") and model.max_seq_length is not None and model.max_seq_length <= most


def _by_library(model: SentenceTransformer) -> torch.Tensor:
    """Without the length of 1 that a last part may give them. [texts, dimension]"""
    length = model.max_seq_length
    found: dict[str, Any] = dict(
        model.tokenizer(PROBES, truncation=True, max_length=length, padding=True, return_tensors="pt")
    )
    with torch.inference_mode():
        for part in list(model)[:2]:
            found = part(found)
    vectors: torch.Tensor = found[SENTENCE]
    return vectors


def refuse_headless(model: CrossEncoder, folder: Path) -> None:
    """The library gives weights that are missing random numbers. Raises RetrieverError.

    A model of modules keeps the layer that scores beside the transformer. Of an adapter's weights a part is elsewhere.
    """
    if any(map(_scores, model)) or not (folder / "config.json").is_file() or (folder / ADAPTER).exists():
        return
    kind: Any = type(model.model)
    verbosity = talk.get_verbosity()
    talk.set_verbosity_error()  # the library has told of it once already
    try:  # without memory for the weights: their names are enough
        _, told = kind.from_pretrained(
            folder, config=model.config, device_map="meta", local_files_only=True, output_loading_info=True
        )
    finally:
        talk.set_verbosity(verbosity)
    if missing := sorted(told["missing_keys"]):
        raise RetrieverError(
            f"the model in {folder} lacks {', '.join(missing[:TOLD])}{', …' if missing[TOLD:] else ''}, so it ranks "
            "nothing: a reranker is a cross-encoder"
        )


def _scores(part: object) -> bool:
    return isinstance(part, LogitScore) or (isinstance(part, Dense) and part.module_output_name == "scores")


class Reranker:
    """A cross-encoder: reads question and chunk together, which is slow and tells better than their vectors.

    One model folder; it is read at the first use, and nothing is ever fetched.
    """

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        self.folder = folder
        self._device = device

    @shared_property
    def _model(self) -> CrossEncoder:
        with loading("reranking", self.folder):
            model = CrossEncoder(str(self.folder), device=self._device, local_files_only=True)
            refuse_headless(model, self.folder)
        if model.num_labels != 1:
            raise RetrieverError(
                f"the model in {self.folder} gives {model.num_labels} labels; a reranker gives one number"
            )
        ranking: CrossEncoder = model
        with loading("reranking", self.folder):
            ranking.preprocess([("", "")])  # what it sets of the tokenizer then stays so
        return ranking

    @shared_property
    def _counting(self) -> PreTrainedTokenizerBase:
        """A tokenizer that pads nothing, beside the model's, which pads: each of them keeps its settings, so that
        threads can share both.
        """
        with loading("reranking", self.folder):
            own: PreTrainedTokenizerBase = copy.deepcopy(self._model.tokenizer)
            _lengths(own, self._model.max_seq_length, [("", "")])
        return own

    def load(self) -> None:
        """What the first score does else. Raises RetrieverError."""
        assert self._model is not None and self._counting is not None

    def score(self, question: str, texts: Sequence[str]) -> FloatArray:
        """One number per text; more is better. [texts]

        Raises RetrieverError, also for what goes wrong in the model.
        """
        scores = np.empty(len(texts))
        if not texts:
            return scores
        model = self._model
        pairs = [(valid(question), valid(text)) for text in texts]
        try:
            for chosen in batches(
                _lengths(self._counting, model.max_seq_length, pairs)
            ):  # within a budget of tokens, padding too
                rows = [pairs[place] for place in chosen]
                scores[chosen] = model.predict(rows, batch_size=len(rows), show_progress_bar=False)
        except (RuntimeError, LookupError, TypeError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise RetrieverError(f"the reranking model in {self.folder} fails: {reason}") from error
        if not np.isfinite(scores).all():
            raise RetrieverError(f"the reranking model in {self.folder} gives scores that are no numbers")
        return scores


def _lengths(tokenizer: PreTrainedTokenizerBase, most: int | None, pairs: Sequence[tuple[str, str]]) -> list[int]:
    """Tokens of each pair as a model reads it that takes so many at most."""
    cut: dict[str, Any] = {"truncation": True, "max_length": most} if most else {}
    rows: list[list[int]] = tokenizer([list(pair) for pair in pairs], **cut)[IDS]
    return list(map(len, rows))
