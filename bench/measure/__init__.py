"""Measure one step in one process.

Modules: the model and its step, the engines that run it, the timer, the memory tracker, and facts about machine and software.
"""
