"""The asset graph: how contracts become assets, and what runs when."""
