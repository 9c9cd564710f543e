"""`ragcache cache explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.flags import Json, configured
from app.cli.output import plain, print_json, table
from app.settings import Settings
from ragcache.report import COMPUTED

if TYPE_CHECKING:
    from app.cachecare.explaining import ExplainedChunk, Explanation

TITLES = ("", "chunk", "tokens", "from", "computed behind", "overlap", "bring", "compute")


@configured("collection", "top_k", "linker", ..., "engine", "model", "device", "dtype", "data_dir", "cache_dir")
def explain(
    settings: Settings,
    question: Annotated[str, typer.Argument(help="What would be asked.")],
    as_json: Json = False,
) -> None:
    """Tell what the cache would do for a question, and when its first token would come; nothing is computed."""
    from app.answering.pipeline import RagPipeline
    from app.cachecare import explaining  # it imports torch

    with RagPipeline(settings) as pipeline:
        found = explaining.explain(pipeline, question)
    if as_json:
        print_json(found.to_dict())
    else:
        _tell(found)


def _tell(found: Explanation) -> None:
    print(table(TITLES, [_row(one) for one in found.chunks], right=("", "tokens", "overlap", "bring", "compute")))
    beside = [f"{found.tokens:,} tokens with the question", f"system prompt {_from(found.system)}"]
    if found.prefix_tokens:
        beside.append(f"{found.prefix_tokens:,} of an exact prefix")
    print(f"\n{', '.join(beside)}; linker {plain(found.linker)}")
    if found.planned_s is not None and found.plain_s is not None:
        print(f"first token planned after {found.planned_s:.2f} s, {found.plain_s:.2f} s without cache")
    for note in found.notes:
        print(f"note: {plain(note)}")


def _row(one: ExplainedChunk) -> tuple[str, ...]:
    tier = f"{one.tier}, sooner than {one.variant} KV" if one.passed else one.tier
    behind = "" if one.passed else one.variant
    overlap = f"{one.overlap:.2f}" if one.variant else ""
    return (str(one.number), one.place, f"{one.tokens:,}", tier, behind, overlap, _ms(one.bring_s), _ms(one.compute_s))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{1000 * seconds:.0f} ms"


def _from(tier: str) -> str:
    return "to be computed" if tier == COMPUTED else f"from {tier}"
