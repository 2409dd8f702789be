"""What the commands of the command line do, and those of the Python API.

A request is checked as far as possible before torch is imported.
"""
