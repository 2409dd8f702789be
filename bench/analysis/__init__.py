"""Pure functions on tables: no torch, no files."""
