"""The platform's own tables: what it knows of topics and of its work on them."""
