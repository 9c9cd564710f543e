"""From documents to chunks, as llama-index node parsers."""
