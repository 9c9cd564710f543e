"""A prompt on its way: where its segments stand, what serves them, and the link of one, step by step."""
