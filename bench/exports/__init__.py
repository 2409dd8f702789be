"""The contract of an export: one file, `bench/exports/<name>.py`, found by the catalog, importing only the standard library at its top level.

    export     (StoredRun, target) -> what to type next, fit for a shell; writes what a run's folder holds, in the form of another program, to
               `target` (a folder, or an address where that program has such; "" for its usual place, below the run's folder). Raises RequestError
               where the run holds nothing for that program or `target` cannot be written, ModuleNotFoundError where the program is not installed.

An export reads the records and changes nothing of them. It can be made again at any time: it takes the place of what it wrote to that target before,
and leaves alone what others wrote there.
"""
