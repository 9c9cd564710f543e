"""From files to documents that can be asked about: read, cut, embedded, indexed, with their KV.

    from app.compose import opened
    from app.ingestion.ingest import Ingest
    from app.ingestion.records import IngestOptions

    with opened(settings) as (library, models):
        collection = library.collection_or_new("papers")
        result = Ingest(library, models, collection, IngestOptions(prune=True)).run([Path("papers")])
        print(result.added, result.failed)

A document becomes visible as a whole, in one transaction; an ingest that is stopped at any point goes on where it was
when it is run again. Importing this brings no model library, nor does an ingest that finds nothing new.

| module | does |
|---|---|
| `survey` | which files are new, changed, gone |
| `readers`, `worker`, `outcome` | files to texts, in processes of their own |
| `draft`, `boundaries` | texts to chunks |
| `writer`, `kv` | chunks to embeddings, KV and rows; and what goes with them |
| `ingest` | all of it, under the collection's lock |
"""
