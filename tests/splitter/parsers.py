"""Node parsers that somebody else may have written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.base import BaseLLM
from llama_index.core.node_parser import NodeParser
from llama_index.core.node_parser.node_utils import build_nodes_from_splits
from llama_index.core.schema import BaseNode, MetadataMode

FAULTS: dict[str, BaseException] = {
    "lookup": KeyError("no such thing"),
    "exit": SystemExit(0),
    "exception": Exception("boom"),
    "assertion": AssertionError(),
    "stop": StopIteration(),
    "pattern": re.error("missing )"),
    "long": ValueError("x " * 100_000),
    "key": KeyboardInterrupt(),
    "memory": MemoryError(),
}


class Strange(NodeParser):
    """Does to a text what `way` says."""

    way: str = "whole"
    llm_like: str | None = None

    def _parse_nodes(self, nodes: Sequence[BaseNode], show_progress: bool = False, **kwargs: Any) -> list[BaseNode]:
        (document,) = nodes
        text = document.get_content(MetadataMode.NONE)
        ways = {
            "whole": [text],
            "nothing": [],
            "upper": [text.upper()],
            "tail": [text[5:]],
            "head": [text[:-5]],
            "gap": [text[:5], text[12:]],
            "round": [text[20:], text[:20]],
            "inside": [text, text[4:9]],
            "blank": [" ", text[:20], "\n", text[20:]],
            "spaces": [" ".join(text[:30].split()), "\n".join(text[30:].split())],
        }
        if self.way in FAULTS:
            raise FAULTS[self.way]
        if self.way == "text":
            return [text]  # type: ignore[list-item]
        if self.way == "none":
            return None  # type: ignore[return-value]
        return [*build_nodes_from_splits(ways[self.way], document)]


class Asking(Strange):
    model: BaseLLM | None = None
