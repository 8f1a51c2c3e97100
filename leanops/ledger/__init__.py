"""The ledger: every row has exactly one fate, counted and named from the tables themselves."""
