"""Spark as a service: one warm Spark Connect server per home, or a cluster that exists already."""
