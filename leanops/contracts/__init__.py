"""The contract of a topic: what its Curated table holds, and what breaks a row."""
