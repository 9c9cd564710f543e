"""Questions, answers, and where they come from."""
