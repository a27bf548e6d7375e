"""Summaries by a model or a person: how they are asked for, cleaned and laid over the history."""
