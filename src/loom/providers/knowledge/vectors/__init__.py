"""Where vectors are kept, and which of them are nearest to another."""
