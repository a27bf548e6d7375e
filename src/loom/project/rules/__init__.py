"""The rules of a project: what its files tell an agent, and which operations they allow."""
