"""What is worth it: how long things take here, whether linking pays, and what leaves a full store."""
