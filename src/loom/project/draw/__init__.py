"""The map as text, within a budget of tokens."""
