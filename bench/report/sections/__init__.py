"""The sections of a report, one subject per file."""
