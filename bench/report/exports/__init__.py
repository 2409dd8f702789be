"""The contract of an export: one file, `bench/report/exports/<name>.py`, found by the catalog, importing only the standard library at its top level.

    PACKAGE           what must be installed for it
    NEEDS_TRAINING    whether a run that trains nothing holds nothing for it
    export            (StoredRun, target) -> what to type next, fit for a shell, or the address to open; writes what a run's folder holds, in the form
                      of another program, to `target` (a folder, or an address where that program has such; "" for its usual place). Raises
                      RequestError where the run holds nothing for that program or `target` cannot be written.

An export reads the records and changes none of them. It can be made again at any time: unchanged entries stay, new results of a cell or training
replace its earlier ones, and what others wrote to that target is left alone.
"""
