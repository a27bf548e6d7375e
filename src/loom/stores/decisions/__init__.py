"""The decision graphs of a store: one for each folder of a project."""
