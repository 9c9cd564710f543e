"""What an operator does to collections and caches: looking, removing, pruning, warming, embedding anew.

Functions over a Library and its Models that return records; the commands of `app/cli` print them.
"""
