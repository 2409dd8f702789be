"""The contracts of plugins, as checks: `bench list --check PACKAGE` and tests/contracts/ hold plugins to them.

The checks raise AssertionError with what is wrong. They need no test framework, and no file of tests/.
"""
