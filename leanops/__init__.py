"""What Lean-Ops knows by itself: contracts, names, tables and the rules between them. No Dagster, no Spark session."""
