"""What a store remembers beside what was said: notes and facts."""
