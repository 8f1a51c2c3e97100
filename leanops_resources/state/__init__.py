"""What the platform remembers between runs, apart from the tables themselves."""
