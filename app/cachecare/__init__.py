"""The care of the KV cache: whose its files are, what goes, and what is computed that is missing."""
