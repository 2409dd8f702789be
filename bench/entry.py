"""Where the program starts. Nothing that imports `models` is imported before it is known to be ours."""

from __future__ import annotations

import sys

from bench.origin import ForeignPackageError, require_own_models


def main() -> None:
    """Run the command line. Exits with 2 and one line where another `models` is in the way."""
    try:
        require_own_models()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from bench import cli

    cli.main()
