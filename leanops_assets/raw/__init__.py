"""The RAW layer in the asset graph."""
