"""Curated: typed rows that keep the contract. A function of Standardized and the active contract alone."""
