"""Run plans: jobs in processes, records on disk, rows per cell."""
