"""What tasks share: reading, tokenising, normalising and making data."""
