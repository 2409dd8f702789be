"""Write runs in the formats of other programs, one program per file.

The catalog finds each `bench/report/exports/<name>.py`. The file imports only the standard library and `bench` at the top level, and defines:

    PACKAGE           the package to install
    NEEDS_TRAINING    whether the program can use only runs that train models
    export            (StoredRun, target) -> the shell command or the address that shows the result. Writes the run to `target`, a folder or, if
                      the program has servers, an address; "" means the program's usual place. Raises RequestError if the run holds nothing for
                      the program or `target` cannot be written.

An export only reads the records and can be repeated at any time: unchanged entries stay, new results of a cell or training replace its old ones,
and other entries in the target stay untouched.
"""
