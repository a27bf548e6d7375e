"""The door of seed 004: what a task remembers and what of it a model sees."""
