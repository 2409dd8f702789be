"""The folder of a pass: the run folders of its steps, pass.json with the time that was spent, and one packed file of all of it."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from pathlib import Path

from bench.files import PACKED, TEMPORARY, unpack, write_atomically, write_json
from bench.running.store import read_json
from bench.serialize import from_json, to_json
from bench.spec import RequestError

LEDGER = "pass.json"
REBUILT = ("report", "checkpoints")
"""Folders of a run that the packed file leaves out: `bench report` builds the one, and the other serves this machine alone."""


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One call of the pass: when it began (ISO 8601) and how long it took."""

    started_at: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """pass.json: what the pass may take, in minutes, and its slices so far."""

    device: str
    minutes: float
    slices: tuple[Slice, ...] = ()

    @property
    def left_s(self) -> float:
        return max(0.0, self.minutes * 60 - sum(found.seconds for found in self.slices))


def read_ledger(folder: Path) -> Ledger | None:
    """None where no pass was begun there. Raises RequestError where the folder holds anything else, or a damaged pass.json."""
    path = folder / LEDGER
    if not path.exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise RequestError(f"{folder} is there, and holds no pass", "choose another --out")
        return None
    try:
        return from_json(Ledger, read_json(path))  # type: ignore[no-any-return]
    except ValueError as error:
        raise RequestError(f"{path} is damaged: {error}", "choose another --out") from error


def write_ledger(folder: Path, ledger: Ledger) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / LEDGER, to_json(ledger))
    except OSError as error:
        raise RequestError(f"cannot write {folder / LEDGER}: {error.strerror or error}", "choose another --out") from error


def pack_folder(folder: Path) -> Path:
    """Write FOLDER.tar.xz beside the folder and return its path. Unpack packed files first: all records are packed together."""
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
            if plain != below and (folder / plain).exists():  # a kill while it was packed left both
                plain = below
            content = unpack(content) if plain != below else content
            member = tarfile.TarInfo(str(Path(folder.name) / plain))
            member.size, member.mtime = len(content), int(path.stat().st_mtime)
            archive.addfile(member, io.BytesIO(content))
