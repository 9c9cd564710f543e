"""Sentences by NLTK's Punkt, from the data that comes with llama-index: nothing is downloaded."""

from __future__ import annotations

import importlib.util
import re
import threading
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

from splitter import SplitterError
from splitter.base import Offsets

DATA = Path("_static", "nltk_cache", "tokenizers", "punkt_tab", "english")
# Punkt sees so much at a time, and goes on where the last sentence of that began: a longer one is cut.
WINDOW = 2048
GAP = re.compile(r"\s(?=\S)")
# Punkt was trained on languages that leave a space behind a stop.
IDEOGRAPHIC = re.compile(r"[。！？｡]+[」』”’）]*")
_READING = threading.Lock()  # two threads would read it twice
DECISIONS = 1 << 16  # how many contexts of a stop are remembered: a text of nothing but stops repeats them


class Punkt(Protocol):
    def span_tokenize(self, text: str) -> Iterable[Offsets]: ...


def sentence_spans(text: str, start: int, end: int) -> Iterator[Offsets]:
    """Sentences of text[start:end], ascending, without blank edges."""
    with _READING:
        punkt = _punkt()
    while start < end:
        stop = _stop(text, start, end)
        found = list(punkt.span_tokenize(text[start:stop]))
        whole = stop == end or len(found) < 2
        for first, last in found if whole else found[:-1]:
            yield from _ideographic(text, start + first, start + last)
        start = stop if whole else start + found[-1][0]


def _stop(text: str, start: int, end: int) -> int:
    if end - start <= WINDOW:
        return end
    found = GAP.search(text, start + WINDOW, min(end, start + 2 * WINDOW))
    return found.end() - 1 if found else min(end, start + 2 * WINDOW)


def _ideographic(text: str, first: int, last: int) -> Iterator[Offsets]:
    for cut in (*(found.end() for found in IDEOGRAPHIC.finditer(text, first, last)), last):
        sentence = text[first:cut]
        if kept := sentence.strip():
            blank = len(sentence) - len(sentence.lstrip())
            yield first + blank, first + blank + len(kept)
        first = cut


@lru_cache(maxsize=1)
def _punkt() -> Punkt:
    """Read once; what it knows never changes afterwards."""
    module, decoder = import_module("nltk.tokenize.punkt"), import_module("nltk.tabdata").PunktDecoder()
    parameters, folder = module.PunktParameters(), _folder()
    # Opened here: NLTK's own reader refuses folders that are not on its search path, which all programs share.
    with (folder / "collocations.tab").open(encoding="utf-8") as file:
        parameters.collocations = set(decoder.tab2tups(file))
    with (folder / "sent_starters.txt").open(encoding="utf-8") as file:
        parameters.sent_starters = decoder.txt2set(file)
    with (folder / "abbrev_types.txt").open(encoding="utf-8") as file:
        parameters.abbrev_types = decoder.txt2set(file)
    with (folder / "ortho_context.tab").open(encoding="utf-8") as file:
        parameters.ortho_context = decoder.tab2intdict(file)
    made = module.PunktSentenceTokenizer(parameters)
    made.text_contains_sentbreak = lru_cache(DECISIONS)(made.text_contains_sentbreak)
    punkt: Punkt = made
    return punkt


def _folder() -> Path:
    # Found, not imported: llama-index is slow to import.
    spec = importlib.util.find_spec("llama_index.core")
    places = spec.submodule_search_locations if spec else None
    folder = Path(places[0]) / DATA if places else None
    if folder is None or not folder.is_dir():
        raise SplitterError("the sentence data of llama-index-core is not there: pip install llama-index-core")
    return folder
