"""Export training curves as TensorBoard event files, one log per training."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path

from bench.report.export import curves_of
from bench.running.store import StoredRun
from bench.serialize import content_id
from bench.spec import RequestError

PACKAGE, NEEDS_TRAINING = "tensorboard", True
UNFINISHED = "unfinished"
"""Temporary name of an event file; TensorBoard ignores it until renamed."""
EVENT_FILES = "events.out.tfevents.*"


def export(stored: StoredRun, target: str) -> str:
    """Write each training's curves and final figures; return the viewer's command.

    The curves are loss and validation by epoch. The folder is `target`, by default `tensorboard` in the run's folder. Raises RequestError if the
    run trained nothing or `target` cannot be written.
    """
    curves = list(curves_of(stored))
    if not curves:
        raise RequestError("this run trained no model, so it has no curves", "--to mlflow exports its figures")
    from torch.utils.tensorboard import SummaryWriter

    folder = Path(target) if target else stored.folder / "tensorboard"
    try:
        for curve in curves:
            content = f".{content_id(curve)}"
            events = list((folder / curve.name).glob(EVENT_FILES))
            if [path.suffix for path in events] == [content]:
                continue
            (folder / curve.name).mkdir(parents=True, exist_ok=True)
            unfinished = folder / curve.name / UNFINISHED
            with tempfile.TemporaryDirectory() as written:
                with SummaryWriter(written, filename_suffix=content) as writer:
                    for name, values in curve.series.items():
                        for epoch, value in enumerate(values, start=1):
                            writer.add_scalar(name, value, epoch)
                    for name, value in curve.totals.items():
                        writer.add_scalar(f"final/{name}", value, 0)
                for path in Path(written).iterdir():
                    shutil.copyfile(path, unfinished)
                    unfinished.rename(unfinished.with_name(path.name))
            for path in events:
                path.unlink()
    except OSError as error:
        raise RequestError(f"cannot write {folder}: {error.strerror or error}", "choose another --target") from error
    return f"tensorboard --logdir {shlex.quote(str(folder))}"
