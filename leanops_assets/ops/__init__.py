"""The platform's own tables in the asset graph."""
