"""OpenAI's API, as its clients speak it."""
