"""Node parsers of llama-index as splitters, by their import path:
`llama_index.core.node_parser.SentenceSplitter:chunk_size=200,chunk_overlap=20`.

Whoever names a path runs the code of its module, so nobody but the operator may.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from inspect import isabstract, signature, unwrap
from traceback import format_exception_only
from types import TracebackType
from typing import Any, get_args

import numpy as np
from llama_index.core import Document
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.node_parser import MetadataAwareTextSplitter, NodeParser
from llama_index.core.schema import BaseNode, MetadataMode
from pydantic import PrivateAttr, ValidationError

from ragcache.errors import RagcacheError
from splitter.base import SURROGATE, ChunkLimits, Embed, Offsets, Piece, Splitter, Tokens
from splitter.documents import check_kind
from splitter.placing import Misplaced, places
from splitter.ruler import Ruler, fit
from splitter.spec import SplitterError, Value, written

PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
# What is no text that a setting could give. `tokenizer` and the embedding are ours.
OBJECTS = {"callback_manager", "id_func", "tokenizer", "sentence_splitter", "chunking_tokenizer_fn"}
NODES_ONLY = {"include_metadata", "include_prev_next_rel"}  # no matter to spans
LONGEST = 500  # characters that are told of an error
# What is not a parser's doing, whatever it is amid: the user's key, a full memory, and what ours have told by then.
NOT_ITS_OWN = (KeyboardInterrupt, MemoryError, RagcacheError)


class NodeParserSplitter(Splitter):
    """Pieces are the parser's nodes, as spans of the text, without headings. What a parser counts by a `tokenizer` is
    counted in the tokens of the model.

    Nodes above the maximum are cut. Those below the minimum stay: how small a node may be is the parser's to say.
    Nodes may share text with the one before them where the parser makes them so, but for those that are cut.
    """

    def __init__(
        self, path: str, settings: Mapping[str, Value], tokens: Tokens, embed: Embed | None, limits: ChunkLimits
    ):
        """Raises SplitterError for a path that is no NodeParser, and for settings that it does not take."""
        if limits.overlap:
            raise SplitterError(f"overlap={limits.overlap}: {path} has its own, which is one of its settings")
        self._path = path
        self._parser = _made(path, settings, tokens, embed)
        self._tokens = tokens
        self._limits = ChunkLimits(1, limits.max_tokens)  # below one token nothing is joined

    def split(self, text: str, kind: str = "prose") -> list[Piece]:
        check_kind(kind)
        if not text.strip():
            return []
        ruler = Ruler(text, self._tokens)
        pieces: list[Offsets] = []
        for start, end in self._spans(ruler.text):
            last = pieces[-1] if pieces else (-1, 0)
            if start <= last[0] or self._is_long(ruler, start, end):
                start = max(start, last[1])
            pieces += fit(ruler, [(start, end)], self._limits)
        return [Piece(start, end) for start, end in pieces]

    def _is_long(self, ruler: Ruler, start: int, end: int) -> bool:
        most = self._limits.max_tokens
        return ruler.between(start, end) > 2 * most or ruler.count(start, end) > most

    def _spans(self, text: str) -> list[Offsets]:
        sound = SURROGATE.sub("\ufffd", text)  # llama-index hashes texts, and these have no bytes
        with Foreign(f"{self._path} fails on this text"):
            parts = _parts(self._parser, sound)
        try:
            return places(sound, parts)
        except Misplaced as error:
            told = f"{self._path} {error}, so its nodes are no spans of it: choose another splitter"
            raise SplitterError(told) from error


class Foreign:
    """A block that runs somebody else's code, which may fail in any way, and may end the program as if all was well:
    what it raises becomes one SplitterError.
    """

    def __init__(self, what: str):
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, NOT_ITS_OWN):
            raise SplitterError(f"{self._what}: {_told(error)}") from error


class EmbedModel(BaseEmbedding):
    """An embedding of ours as llama-index's parsers take it."""

    _embed: Embed = PrivateAttr()

    def __init__(self, embed: Embed):
        super().__init__(model_name="ragcache", embed_batch_size=256)
        self._embed = embed

    def _get_text_embeddings(self, texts: Sequence[str]) -> list[list[float]]:
        vectors: list[list[float]] = np.asarray(self._embed(texts)).tolist()
        return vectors

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


def parser_class(path: str) -> type[NodeParser]:
    """Imports its module. Raises SplitterError where that holds no NodeParser of this name."""
    module, _, name = path.rpartition(".")
    if not PATH.fullmatch(path) or "__main__" in path.split("."):
        raise SplitterError(f"{path!r} is no import path of a class: write package.module.Class")
    with Foreign(f"cannot import the splitter {path}"):
        found = getattr(import_module(module), name)
    if not (isinstance(found, type) and issubclass(found, NodeParser)):
        raise SplitterError(
            f"{path} is no splitter: it should be a class below llama_index.core.node_parser.NodeParser"
        )
    if isabstract(found):
        raise SplitterError(f"{path} is what parsers have in common: name one of them")
    return found


def _made(path: str, settings: Mapping[str, Value], tokens: Tokens, embed: Embed | None) -> NodeParser:
    parser = parser_class(path)
    with Foreign(f"cannot make the splitter {path}"):
        taken = {name for name, one in signature(parser).parameters.items() if one.kind is not one.VAR_KEYWORD}
    holding = {name: field.annotation for name, field in parser.model_fields.items()}
    if "llm" in taken or any(_holds(annotation, BaseLLM) for annotation in holding.values()):
        raise SplitterError(f"{path} asks a language model while it splits: choose a splitter that does without")
    embedding = {name for name, annotation in holding.items() if _holds(annotation, BaseEmbedding)} & taken
    if embedding and embed is None:
        raise SplitterError(f"{path} needs an embedding: give one, or choose another splitter")
    known = sorted(taken - OBJECTS - NODES_ONLY - embedding)
    for key, value in settings.items():
        if key not in known:
            choice = f"choose from {', '.join(known)}" if known else "it takes none"
            raise SplitterError(f"splitter {path} has no setting {key!r} (={written(value)}): {choice}")
    given: dict[str, Any] = {name: EmbedModel(embed) for name in embedding if embed}
    if "tokenizer" in taken:
        given["tokenizer"] = lambda text: range(tokens.count(text))  # its length is all that parsers ask for
    with Foreign(f"cannot make the splitter {path}"):
        made = parser(**given, **settings)
    return made


def _parts(parser: NodeParser, text: str) -> list[tuple[str, int | None]]:
    """The texts of its nodes, and where they start by what the parser says."""
    own = unwrap(type(parser)._parse_nodes)  # llama-index wraps it to trace it
    if isinstance(parser, MetadataAwareTextSplitter) and own is unwrap(MetadataAwareTextSplitter._parse_nodes):
        # These print a warning for small chunks, to the output that others read, where there may be metadata.
        found: list[tuple[str, int | None]] = [(part, None) for part in parser.split_text(text)]
    else:
        nodes = parser.get_nodes_from_documents([Document(text=text)])
        found = [(node.get_content(MetadataMode.NONE), _offset(node, text)) for node in nodes]
    if any(not isinstance(part, str) for part, _ in found):
        raise TypeError("its nodes are no texts")
    return found


def _offset(node: BaseNode, text: str) -> int | None:
    """Where it says that it starts, if that is in the text."""
    said = getattr(node, "start_char_idx", None)
    return said if isinstance(said, int) and 0 <= said < len(text) else None


def _holds(annotation: Any, wanted: type) -> bool:
    """Whether a value of this type may be, or hold, a `wanted`."""
    if isinstance(annotation, type) and issubclass(annotation, wanted):
        return True
    return any(_holds(part, wanted) for part in get_args(annotation))


def _told(error: BaseException) -> str:
    """On one line."""
    if isinstance(error, ValidationError):
        said = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    else:
        said = "".join(format_exception_only(error))  # also where it cannot say what it is
    told = " ".join(said.split())
    return told if len(told) <= LONGEST else f"{told[:LONGEST]}…"
