"""Skills: folders with a SKILL.md that tells a model how to do one kind of work."""
