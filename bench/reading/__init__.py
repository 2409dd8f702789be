"""Read stored runs: plan and records to rows, times and merged runs."""
