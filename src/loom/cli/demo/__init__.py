"""`loom demo`: what Loom does, on examples that it brings along."""
