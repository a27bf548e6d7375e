"""Loom decides what a language model sees."""
