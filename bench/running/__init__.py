"""Run plans: jobs in processes, records on disk."""
