"""The application: settings, composition, ingestion, pipeline and its ways in (CLI, HTTP)."""
