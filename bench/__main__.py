"""Where the program starts: `bench`, `gmlp-bench` and `python -m bench`.

`models` and `ablations` are common names: nothing that imports them is imported before they are known to belong to this `bench`.
"""

from __future__ import annotations

import atexit
import gc
import importlib.util
import sys
from pathlib import Path


def main() -> None:
    """Run the command line. Exits with 2 and one line where another `models` is in the way."""
    try:
        require_own_models()
    except ForeignPackageError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    from bench import cli

    atexit.register(gc.freeze)  # what is left at the end is not searched for cycles once more
    cli.main()


OWN_PACKAGES = ("models", "ablations")


class ForeignPackageError(ImportError):
    """Another module of the same name comes first on sys.path. The message names both paths and what to do."""


def require_own_models(own_folder: Path = Path(__file__).parents[1]) -> None:
    """Raise ForeignPackageError where a package of `OWN_PACKAGES` would not be imported from `own_folder`; nothing of it is executed."""
    for name in OWN_PACKAGES:
        own = (own_folder / name).resolve()
        found = _location(name)
        if found != own:
            raise ForeignPackageError(
                f"`{name}` would be imported from {found or 'nowhere'}, not from {own}, which belongs to bench; "
                "rename the former, or start bench from another folder and without it on PYTHONPATH"
            )


def _location(name: str) -> Path | None:
    """The folder of a package, or the file of a plain module."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations:  # a package, or a folder without __init__.py, which has no origin
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(spec.origin).resolve() if spec.origin else None


if __name__ == "__main__":
    main()
