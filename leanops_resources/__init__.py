"""What the outside is reached through: Spark, the catalog, the state store, the contracts."""
