"""A project's files, and an index on disk of what they define and say."""
