"""Answers from stored KV inside a llama-index program.

    from app.llama.engines import CachedQueryEngine

    engine = CachedQueryEngine(pipeline, retriever)  # any retriever; the pipeline's own when None
    response = engine.query("Who designed the lighthouse?")

llama-index's own synthesizers turn nodes into one string, and with that lose what each chunk is. These keep the nodes
apart, so that the KV of each is found: by its text, whoever cut and retrieved it.
"""
