"""Training curves as TensorBoard's event files, one log per training."""

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
"""The name of a file of events until it is whole, which TensorBoard does not read."""
EVENT_FILES = "events.out.tfevents.*"


def export(stored: StoredRun, target: str) -> str:
    """Loss and validation by epoch, and what a training came to, below `target` (default: `tensorboard` in the run's folder).

    Raises RequestError where the run trained nothing, or `target` cannot be written.
    """
    curves = list(curves_of(stored))
    if not curves:
        raise RequestError("this run trained nothing: there are no curves", "--to mlflow takes its figures")
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
