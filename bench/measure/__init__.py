"""Measures one step in one process: the model, its engine, the timer, the memory tracker, the environment."""
