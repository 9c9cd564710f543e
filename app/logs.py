"""What the program says of itself while it works, on stderr."""

from __future__ import annotations

import logging

OURS = ("app", "ragcache", "retriever", "splitter", "ui", "benchmarks")


def configure_logging(level: str) -> None:
    """Our loggers at the level of the settings; libraries speak up from warnings on."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    for name in OURS:
        logging.getLogger(name).setLevel(level.upper())
    # At every start vLLM warns of a dozen things that are as they should be.
    logging.getLogger("vllm").setLevel(logging.DEBUG if level == "debug" else logging.ERROR)
