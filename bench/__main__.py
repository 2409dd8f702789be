"""Start the program: `bench`, `gmlp-bench` and `python -m bench`.

`models` and `ablations` are common package names. Nothing that needs them is imported before they are known to belong to this
`bench`.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Run the command line; exit with 2 if another `models` shadows ours."""
    try:
        require_own_models()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from bench import cli

    atexit.register(gc.freeze)  # skip garbage collection of the remaining objects at exit
    cli.main()


OWN_PACKAGES = ("models", "ablations")


class ForeignPackageError(ImportError):
    """Another module of the same name comes first on sys.path.

    The message names both paths and the remedy.
    """


def require_own_models() -> None:
    """Check that OWN_PACKAGES would be imported from the folder that holds `bench`.

    Raises ForeignPackageError otherwise. No code of the packages runs.
    """
    for name in OWN_PACKAGES:
        own = (Path(__file__).parents[1] / name).resolve()
        found = _location(name)
        if found != own:
            raise ForeignPackageError(
                f"`{name}` would be imported from {found or 'nowhere'}, not from {own}, which belongs to bench; "
                "rename the former, or take it off PYTHONPATH and start bench from another folder"
            )


def _location(name: str) -> Path | None:
    """Return the folder of a package, or the file of a module."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:  # a package; a folder without __init__.py has no origin
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


if __name__ == "__main__":
    main()
