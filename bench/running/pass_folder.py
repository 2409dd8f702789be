"""Read, write and pack the folder of a `bench gpu` pass.

The folder holds the run folders of the pass's steps, and pass.json with the time spent in each slice (one call of the command).
"""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from bench.files import PACKED, TEMPORARY, unpack, write_atomically, write_json
from bench.running.store import read_json, writing
from bench.serialize import from_json, to_json
from bench.spec import RequestError

LEDGER = "pass.json"
REBUILT = ("report", "checkpoints")
"""Folders of a run omitted from the packed file.

`bench report` rebuilds reports; checkpoints are of use only on this machine.
"""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One call of `bench gpu`.

    `started_at`: ISO 8601.
    `seconds`: its duration.
    """

    started_at: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class PassLedger:
    """The content of pass.json.

    `device`: the device that the pass measures.
    `minutes`: the time budget of the whole pass.
    `slices`: the calls so far.
    """

    device: str
    minutes: float
    slices: tuple[Slice, ...] = ()

    @property
    def left_s(self) -> float:
        return max(0.0, self.minutes * 60 - sum(found.seconds for found in self.slices))


def read_ledger(folder: Path) -> PassLedger | None:
    """Return the folder's ledger; None for a new or empty folder.

    Raises RequestError if the folder holds something else, or a damaged pass.json.
    """
    path = folder / LEDGER
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RequestError(f"{folder} exists, but has no {LEDGER}", "choose another --out")
        return None
    try:
        return from_json(PassLedger, read_json(path))  # type: ignore[no-any-return]
    except ValueError as error:
        raise RequestError(f"{path} is damaged: {error}", "choose another --out") from error


def write_ledger(folder: Path, ledger: PassLedger) -> None:
    """Write pass.json; raises RequestError if that fails."""
    with writing(folder / LEDGER):
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / LEDGER, to_json(ledger))


def pack_folder(folder: Path) -> Path:
    """Write FOLDER.tar.xz beside the folder and return its path.

    Files packed one by one are unpacked into it, because all records compress better together.
    """
    target = folder.with_name(f"{folder.name}.tar{PACKED}")
    write_atomically(target, lambda temporary: _write(temporary, folder))
    return target


def _write(target: Path, folder: Path) -> None:
    with tarfile.open(target, "w:xz") as archive:
        for path in sorted(folder.rglob("*")):
            below = path.relative_to(folder)
            if not path.is_file() or path.name.endswith(TEMPORARY) or any(name in REBUILT for name in below.parts):
                continue
            content, plain = path.read_bytes(), below.with_suffix("") if path.suffix == PACKED else below
            if plain != below and (folder / plain).exists():  # a run killed while packing leaves both forms
                plain = below
            content = unpack(content) if plain != below else content
            member = tarfile.TarInfo(str(Path(folder.name) / plain))
            member.size, member.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(member, io.BytesIO(content))
