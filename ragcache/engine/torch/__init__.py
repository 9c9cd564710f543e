"""The torch engine: our own forward over a KV buffer, on CPU and CUDA."""
