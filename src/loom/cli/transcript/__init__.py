"""Commands that read a transcript: check, convert, show."""
