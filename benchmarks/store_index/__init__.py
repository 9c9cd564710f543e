"""The index of a large cache folder: `python -m benchmarks.store_index [ENTRIES]`."""
