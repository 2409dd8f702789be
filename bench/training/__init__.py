"""The training loop that every family shares."""
