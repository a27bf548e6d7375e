"""Recall: what a question asks, how documents are scored, and which are chosen for a budget."""
