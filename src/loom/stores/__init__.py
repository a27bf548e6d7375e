"""Where conversations are kept: one seam over SQLite and PostgreSQL, and what is stored through it."""
