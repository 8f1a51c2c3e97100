"""Contracts in the UI: what people do with them before and after they are active."""
