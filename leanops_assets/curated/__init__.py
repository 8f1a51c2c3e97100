"""The Curated layer in the asset graph."""
