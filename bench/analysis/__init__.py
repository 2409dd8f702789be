"""Compute answers from tables, without torch and without files."""
