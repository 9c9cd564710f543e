"""What `ragcache bench …` runs: each benchmark prints a table and writes its figures as JSON."""
