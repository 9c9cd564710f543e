"""A llama-index program whose answers come from stored KV.

    python examples/llama_index_engines.py

Loading, splitting, indexing and retrieving are llama-index as ever; only the engine at the end is ours. It keeps the
retrieved nodes apart instead of writing them into one string, so the KV of each is found and linked.
"""

from __future__ import annotations

from llama_index.core import Document, StorageContext, VectorStoreIndex

from app import RagPipeline, Settings
from app.llama.engines import CachedChatEngine, CachedQueryEngine, KVGenTransform
from app.samples import read_samples
from retriever.llama.adapters import LocalEmbedding
from retriever.llama.vector_store import FaissBm25VectorStore
from splitter.nodes import AutoNodeParser


def main(settings: Settings) -> None:
    with RagPipeline(settings) as pipeline:
        template, embedder = pipeline.answering.template, pipeline.models.embedder
        documents = [
            Document(text=text, doc_id=name, metadata={"file_name": name, "kind": "markdown"})
            for name, text in read_samples().items()
        ]
        embedding = LocalEmbedding(embedder)
        parser = AutoNodeParser(tokens=template.tokens, embed_model=embedding, max_tokens=settings.chunk_tokens)
        index = VectorStoreIndex.from_documents(
            documents,
            storage_context=StorageContext.from_defaults(vector_store=FaissBm25VectorStore(embedder.dimension)),
            # The second step computes the KV of all nodes now. Without it, the first answer that uses a node does.
            transformations=[parser, KVGenTransform(pipeline.answering)],
            embed_model=embedding,
        )
        retriever = index.as_retriever(similarity_top_k=settings.top_k)

        response = CachedQueryEngine(pipeline, retriever).query("Who designed the lighthouse?")
        told = response.metadata or {}
        print(response)
        for citation, node in zip(told["citations"], response.source_nodes, strict=True):
            print(f"  [{citation['number']}] {citation['source']}, node {node.node.node_id[:8]}")
        print(f"  chunks came from: {[chunk['tier'] for chunk in told['report']['chunks']]}")

        chat = CachedChatEngine(pipeline, retriever)
        print(chat.chat("How tall is the lighthouse?"))
        for piece in chat.stream_chat("And when was it first lit?").response_gen:
            print(piece, end="", flush=True)
        print()


if __name__ == "__main__":
    main(Settings(max_tokens=32))
