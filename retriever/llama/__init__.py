"""The retriever as parts of llama-index: a vector store, a retriever and an embedding model."""
