"""`loom tree`: branching conversations that are kept."""
