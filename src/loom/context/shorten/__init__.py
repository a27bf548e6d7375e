"""Texts made shorter: by their kind, by whole lines, with a marker that says what is missing."""
