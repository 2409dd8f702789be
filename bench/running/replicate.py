"""Name a replicate's folder after its host; allow one per boot.

A replicate repeats the headline measurement on another machine (`bench replicate`).
"""

from __future__ import annotations

import re
from pathlib import Path

from bench.planning.jobs import is_complete
from bench.running.store import ENVIRONMENT, read_environment, read_run
from bench.spec import RequestError

REPLICATE, QUICK = "replicate", "quick"
MAX_SLUG = 32
BOOT_DIGITS = 6


def run_name(host: str, boot: str, *, quick: bool) -> str:
    """Return `replicate-<host>-<boot>`, with `-quick` for a quick run.

    `host`: readable type of the host, shortened to MAX_SLUG characters.
    `boot`: hash of the boot; "" if unknown.
    """
    words = re.sub(r"\b(family|model|stepping)\b|\((r|tm)\)|[^a-z0-9]+", "-", host.lower())
    words = re.sub(r"-+", "-", words).strip("-")
    short = words if len(words) <= MAX_SLUG else words[: MAX_SLUG + 1].rpartition("-")[0] or words[:MAX_SLUG]
    return "-".join(part for part in (REPLICATE, short, boot[:BOOT_DIGITS], QUICK if quick else "") if part)


def require_new_boot(boot: str, results: Path) -> None:
    """Raise RequestError if results hold a replicate of this boot.

    Quick replicates do not count. A second replicate would not add a new machine.
    """
    for folder in sorted(results.glob(f"*{REPLICATE}*")):
        if folder.name.endswith(f"-{QUICK}") or not (folder / ENVIRONMENT).exists() or read_environment(folder).get("boot") != boot:
            continue
        run = read_run(folder)
        finished = is_complete(run.plan, run.records)
        hint = f"pool it with others: bench pool {folder} RUN..." if finished else f"finish it: bench run --resume {folder}"
        raise RequestError(f"{folder} already holds a replicate of this boot", hint)
