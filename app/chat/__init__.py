"""Chat without retrieval: messages by the model's own template, in which context caches may stand anywhere."""
