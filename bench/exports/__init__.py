"""The contract of an export: one file, `bench/exports/<name>.py`, found by the catalog, importing only the standard library at its top level.

    PACKAGE    what must be installed for it
    export     (StoredRun, target) -> what to type next, fit for a shell; writes what a run's folder holds, in the form of another program, to
               `target` (a folder, or an address where that program has such; "" for its usual place). Raises RequestError where the run holds
               nothing for that program or `target` cannot be written.

An export reads the records and changes nothing of them. It can be made again at any time, as a run that goes on does: what it wrote to that target
before and is still true stays, what is no longer true goes, and what others wrote there is left alone.
"""
