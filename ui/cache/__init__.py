"""What the cache holds, costs and saves."""
