"""Where the ids and keys of a topic stand, so that a build need not open every file of its past."""
