"""From a question to chunks: embedding, vector and keyword indexes, fusion, reranking."""
