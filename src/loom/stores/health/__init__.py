"""Whether a store is sound, and how words leave it for good."""
