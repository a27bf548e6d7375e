"""What a project knows of itself: its files, what they define, and which of it matters now."""
