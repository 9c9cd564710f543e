"""Engines: what computes and holds KV."""
