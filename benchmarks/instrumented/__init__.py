"""On the PYTHONPATH of what a benchmark starts: `sitecustomize` counts calls of catalog and files, or slows them."""
