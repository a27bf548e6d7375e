"""Search over transcript files as they lie in their folders, with an index on disk."""
