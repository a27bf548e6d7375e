"""Talk with a model, or let it carry out a task."""
