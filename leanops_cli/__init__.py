"""`leanops`, the command line: a thin layer over the functions that the Dagster jobs call."""
