"""Shared by tasks: reading, tokenising, normalising and generating data."""
