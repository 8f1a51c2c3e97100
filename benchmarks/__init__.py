"""Speed and memory, measured on demand by `make bench`. Ratios within one run count; machines are noisy."""
