"""The page of the KV cache.

| module | does |
|---|---|
| `page` | puts the parts together: what is open stands in the address |
| `figures` | tiers and collections with their budgets, and sums of what answers had |
| `timeline` | columns over time, and the same as a table |
| `reuse` | the chunks that served most, with their texts |
| `tending` | one collection: what it costs, and what is done to it, told before |
| `budgets` | other budgets, told before |
"""
