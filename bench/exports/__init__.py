"""The contract of an export: one file, `bench/exports/<name>.py`, found by the catalog, importing only the standard library at its top level.

    export     (StoredRun, target) -> what to type next; writes what a run's folder holds, in the form of another program, to `target` (a folder or an
               address; "" for that program's usual place). Raises ModuleNotFoundError where the program is not installed.

An export reads the records and changes nothing of them: it can be made again at any time.
"""
