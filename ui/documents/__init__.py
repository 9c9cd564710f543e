"""What can be asked: files, how they were cut, and what became of them."""
