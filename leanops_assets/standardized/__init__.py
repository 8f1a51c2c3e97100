"""The Standardized layer in the asset graph."""
