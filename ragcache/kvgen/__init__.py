"""From chunks to stored variants: capture, attention profiles, ingest, and what is captured after an answer."""
