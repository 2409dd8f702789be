"""Runs plans: jobs in processes, records on disk, one table row per cell."""
