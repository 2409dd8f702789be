"""A task, a mixer, a metric and an ablation of gmlp-bench."""
