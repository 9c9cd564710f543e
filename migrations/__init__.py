"""Changes of the database schema, in order."""
