"""`loom session`: sessions that are kept."""
