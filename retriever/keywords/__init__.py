"""Keyword search: words, and an inverted index of them in segments that are searched by BM25."""
