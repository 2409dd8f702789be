"""The one training loop that every family shares."""
