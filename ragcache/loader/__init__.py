"""Loaders: from tiers into the prompt's KV buffer."""
