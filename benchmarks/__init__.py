"""What `ragcache bench …` and `make gpu` run, a folder per benchmark: tables for people, JSON for programs."""
