"""How well a variant's KV fits a new prompt (Cache-Craft, section 3)."""
