"""Which files and definitions of a project matter for a request."""
