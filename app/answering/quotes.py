"""The sentence of each cited chunk that supports the answer best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from app.answering.citations import Citation, Quote
from app.library.catalog.records import PageName
from retriever import Vectors
from splitter.base import Embed, Offsets

LIKELY = 3  # sentences of each chunk that the embedder compares

Pages = Callable[[Citation, int, int, str], Sequence[PageName] | None]  # of a span of its document, with its text


def quoted(
    citations: Sequence[Citation], question: str, answer: str, embed: Embed, pages: Pages
) -> tuple[Citation, ...]:
    """The citations with quotes: one pass of the embedder over a dozen sentences, so it costs little.

    Sentences are compared with question and answer together: an answer may be one name, which is in all of them.
    """
    said = f"{question} {answer}"
    from splitter.units import sentence_spans  # it imports NLTK

    spans = [_likely(one.text, list(sentence_spans(one.text, 0, len(one.text))), said) for one in citations]
    if not answer or not any(spans):
        return tuple(citations)
    texts = [citation.text[start:end] for citation, own in zip(citations, spans, strict=True) for start, end in own]
    vectors = embed([said, *texts])
    likeness = vectors[1:] @ vectors[0]  # [sentences]
    done, first = [], 0
    for citation, own in zip(citations, spans, strict=True):
        done.append(_with_quote(citation, own, likeness[first : first + len(own)], pages))
        first += len(own)
    return tuple(done)


def _likely(text: str, spans: list[Offsets], said: str) -> list[Offsets]:
    """The few that share most with what was said, letter by letter, in any language; in their order."""
    wanted = _trigrams(said)
    shares = {
        span: len(own & wanted) / (len(own) + len(wanted)) for span in spans if (own := _trigrams(text[slice(*span)]))
    }
    return sorted(sorted(shares, key=lambda span: -shares[span])[:LIKELY])


def _trigrams(text: str) -> set[str]:
    padded = f" {text.casefold()} "
    return {padded[place : place + 3] for place in range(len(padded) - 2)}


def _with_quote(citation: Citation, spans: Sequence[Offsets], likeness: Vectors, pages: Pages) -> Citation:
    if not spans:
        return citation
    best = int(likeness.argmax())
    start, end = spans[best]
    text = citation.text[start:end]
    start, end = citation.start + start, citation.start + end
    # A chunk within one page tells the page of its sentences; only else the catalog is asked.
    found = pages(citation, start, end, text) if len(citation.pages) > 1 else None
    quote = Quote(start, end, text, tuple(citation.pages if found is None else found), float(likeness[best]))
    return replace(citation, quote=quote)
