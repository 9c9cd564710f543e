"""A server asked over HTTP, by programs that start at once: nothing here brings a model, the catalog or the settings.

| module | does |
|---|---|
| `address` | which server is meant, and the key for it |
| `connection` | requests to it, and what it answers |
| `answers`, `conversation` | questions |
| `files` | documents and the jobs that ingest them |
| `cache` | the KV cache: what is in it, what it was good for, and what is done to it |
| `library` | the same for a page: text and chunks, progress, what a server says of itself |
"""
