"""RAW: what landed, as it landed. Append-only, by publish day."""
