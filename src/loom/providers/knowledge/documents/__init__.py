"""Documents: files and texts as chunks that know their headings and lines."""
