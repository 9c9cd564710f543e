"""`ragcache reindex`."""

from __future__ import annotations

import sys

from tqdm import tqdm

from app.cli.flags import Json, configured
from app.cli.output import plain, print_json
from app.client.amounts import count
from app.compose import opened
from app.library.indexes import reindex as reindexing
from app.models.embedding import in_parts
from app.settings import Settings


@configured("collection", "device", ..., "data_dir")
def reindex(settings: Settings, as_json: Json = False) -> None:
    """Build the indexes of a collection anew; embed its chunks again where the embedder is another one by now."""
    embedded = long = 0
    with (
        opened(settings) as (library, models),
        tqdm(desc="embedding", unit=" chunks", file=sys.stderr, disable=not sys.stderr.isatty()) as bar,
    ):
        for report in reindexing(library, models, settings.collection):
            embedded, long = report.embedded, report.in_parts
            bar.total = report.chunks
            if report.sentences:  # the bar starts anew: they are of as many chunks
                bar.set_description_str("sentences", refresh=False)
            bar.update((report.sentences or report.embedded) - bar.n)
        if long:
            print(f"note: {in_parts(models.embedder, long)}", file=sys.stderr)
    if as_json:
        told = {"collection": report.collection.name, "embedder": report.collection.embedder}
        print_json(told | {"chunks": report.chunks, "embedded": embedded})
        return
    anew = f"{count(embedded, 'chunk')} embedded by {report.collection.embedder}, " if embedded else ""
    print(f"{plain(report.collection.name)}: {anew}{count(report.chunks, 'chunk')} indexed")
