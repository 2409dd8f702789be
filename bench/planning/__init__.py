"""From words to a plan: flags, requests, matched sizes, the jobs of a plan."""
