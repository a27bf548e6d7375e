"""Summaries by a model or a person: how they are asked for and cleaned."""
