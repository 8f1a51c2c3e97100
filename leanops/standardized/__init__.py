"""Standardized: one row per business record, flat, all STRING. A function of RAW alone."""
