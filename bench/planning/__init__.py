"""Turn flags into a plan: request, matched sizes, configurations and jobs."""
