"""Every job has a process of its own, prepared and single-threaded."""

from __future__ import annotations

import dataclasses
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from bench import fork_server
from bench.fork_server import PRELOAD
from bench.progress import listening, speaker, tell
from bench.running.child import compile_cache, died, require_prepared_server
from bench.running.executors import inline, run_batch
from bench.running.executors.process import Executor, _wait, _Worker
from bench.spec import Job, Outcome, Recipe, Settings
from bench.tasks import DATA_VARIABLE
from models.layers.shape import Interface
from tests.made_jobs import small_job, small_model
from tests.timed import in_group

PROGRAM_ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(fork_server.__file__).parents[1])}


def job(metric: str, **work: Any) -> Job:
    found = small_job(metric, work={"batch_size": 1, **work}, settings=Settings(sample_s=0.05))
    return in_group(found) if metric == "latency" else found


def outcome_of(executor: Executor, job: Job) -> Outcome:
    (outcome,) = run_batch(executor, (job,))
    return outcome


@pytest.fixture(scope="module")
def executor() -> Iterator[Executor]:
    with Executor() as started:
        yield started


def test_a_metric_comes_back_from_its_process(executor: Executor) -> None:
    outcome = outcome_of(executor, job("memory"))
    assert outcome.status == "measured", outcome.reason
    assert outcome.values
    assert outcome.started_at
    assert outcome.start_s is not None
    assert outcome.duration_s is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "kernel", "precision"),
    [
        ({"attention": "math"}, "math", "fp32"),
        ({"dtype": "bf16"}, "flash", "bf16 weights and activations"),
        ({"dtype": "bf16-autocast", "phase": "train"}, "flash", "bf16 products, fp32 weights (autocast)"),
    ],
)
def test_what_really_ran_is_recorded(executor: Executor, work: dict[str, object], kernel: str, precision: str) -> None:
    outcome = outcome_of(executor, job("latency", **work))
    assert outcome.status == "measured", outcome.reason
    assert (outcome.values["attention_effective"], outcome.values["precision_effective"]) == (kernel, precision)
    assert outcome.values["threads"] == 1
    assert len(outcome.samples["wall_ms"]) == 3  # one of each block


def test_a_server_that_lacks_its_preload_or_has_threads_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delitem(sys.modules, PRELOAD[-1], raising=False)
    with pytest.raises(AssertionError, match="could not import"):
        require_prepared_server()
    monkeypatch.setitem(sys.modules, PRELOAD[-1], sys)
    for thread in ("1", "2"):
        (tmp_path / thread).mkdir()
    monkeypatch.setattr("bench.running.child.Path", lambda _: tmp_path)
    with pytest.raises(AssertionError, match="2 threads"):
        require_prepared_server()
    (tmp_path / "2").rmdir()
    require_prepared_server()
    assert os.getppid() > 0


def tell_wave(connection: Connection) -> None:
    """Say whether `wave` is imported, then live until told to end."""
    connection.send("wave" in sys.modules)
    connection.recv()


@pytest.mark.slow
def test_a_server_without_a_library_is_replaced_while_its_children_live_on() -> None:
    """Planning may start it before it is known what the models need; `wave` stands for a library."""
    children = []
    for libraries in ((), ("wave",), ("wave",)):
        fork_server.use_libraries(libraries)
        process, connection = fork_server.new_process(tell_wave)
        children.append((process, connection))
        assert connection.recv() == bool(libraries)
    for process, connection in children:
        assert process.is_alive()
        connection.send(None)
        process.join()


def training_job(num_epochs: int, task: str, patch_dim: int) -> Job:
    model = small_model(ffn_width=64, interface=Interface(patch_dim=patch_dim, num_classes=10))
    return small_job("accuracy", model, work={"task": task}, recipe=Recipe(epochs=num_epochs, batch_size=128))


@pytest.mark.slow
def test_what_a_job_tells_is_heard_in_the_parent_before_its_outcome(executor: Executor) -> None:
    """Lines and outcome share one pipe: a child that tells in between is no outcome, and its outcome no line."""
    told: list[str] = []
    found = training_job(40, "digits", 64)

    def hear(text: str) -> None:
        told.append(text)
        assert speaker() == found

    with listening(hear):
        outcome = executor.run(found)
    assert outcome.status == "measured", outcome.reason
    assert told
    assert all(line.startswith("epoch ") for line in told)
    assert outcome.values["num_epochs"] == 40
    assert executor.run(training_job(1, "digits", 64)).status == "measured"  # though nobody listens


def test_what_a_job_in_this_process_tells_is_of_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell_epoch(_: Job) -> Outcome:
        tell("epoch 1 of 2")
        return Outcome(status="measured")

    monkeypatch.setattr(inline, "run_job", tell_epoch)
    monkeypatch.setattr(inline, "prepare", lambda _: {})
    trainings, heard = tuple(training_job(epochs, "digits", 64) for epochs in (1, 2)), list[Job | None]()
    with listening(lambda _: heard.append(speaker())):
        run_batch(inline.Executor(), trainings)
    assert heard == list(trainings)


def test_data_named_after_the_server_began_are_found(executor: Executor, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In one Python process, a later run may name another folder."""
    found = training_job(1, "cifar10", 192)
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert "needs a folder with data sets" in executor.run(found).reason
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    assert str(tmp_path) in executor.run(found).reason


def _tear(send: Any) -> None:
    """What an end in the middle of sending leaves: the length of a message, and less of it than that."""
    os.write(send.fileno(), (1000).to_bytes(4, "big") + b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_while_it_answers_is_accounted_for() -> None:
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_tear, args=(send,))
    process.start()
    send.close()
    outcome = _wait(_Worker(unit=None, process=process, connection=receive), job("params"), 30.0)
    assert outcome is not None
    assert (outcome.status, "SIGKILL" in outcome.reason) == ("killed", True)


def test_what_a_member_tells_in_its_turn_is_of_its_job_and_what_ran_out_is_its_whole_limit() -> None:
    receive, send = multiprocessing.Pipe(duplex=False)
    worker, found = _Worker(unit=None, process=None, connection=receive), training_job(1, "digits", 64)
    heard: list[tuple[str, Job | None]] = []
    send.send("epoch 1 of 2")
    send.send(None)
    with listening(lambda text: heard.append((text, speaker()))):
        assert _wait(worker, found, 30.0) is None
    assert heard == [("epoch 1 of 2", found)]
    outcome = _wait(worker, found, 0.0)
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("timed_out", f"longer than the limit of {found.settings.train_limit_s:g} s")


class Refused:
    """A process whose server is dying: it is refused some times before another server starts it."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)

    def start(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def test_a_server_that_is_still_dying_is_asked_until_it_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its socket is closed before the system says that it has ended; on a busy machine long before."""
    process = Refused(ConnectionRefusedError(), EOFError(), BrokenPipeError())
    fork_server.start(process)
    assert process.errors == []
    monkeypatch.setattr("bench.fork_server.DEATH_S", -1.0)
    with pytest.raises(ConnectionRefusedError):
        fork_server.start(Refused(ConnectionRefusedError()))
    with pytest.raises(PermissionError):
        fork_server.start(Refused(PermissionError()))


def test_a_signal_without_a_name_is_told_by_its_number() -> None:
    assert "signal 40" in died(-40).reason


def cached_in(job: Job) -> str:
    return compile_cache("/the/run", job)


def test_no_other_metric_or_configuration_compiles_for_a_timed_one() -> None:
    """Otherwise its first call would find compiled code and `compile_s` would be the time of reading it."""
    timed = cached_in(job("latency", engine="compile"))
    assert timed not in {cached_in(job(metric, engine="compile")) for metric in ("memory", "energy", "equality")}
    assert timed != cached_in(job("latency", engine="compile", attention="math"))


def test_all_rounds_and_the_control_find_what_the_pilot_compiled() -> None:
    """Compiling takes tens of seconds on a GPU; once is enough, and the pilot notes how long it took."""
    first = job("latency", engine="compile")
    others = (dataclasses.replace(first, metric="pilot"), dataclasses.replace(first, repeat=1), dataclasses.replace(first, control=True))
    assert {cached_in(other) for other in others} == {cached_in(first)}


def test_on_a_gpu_the_jobs_of_a_configuration_share_a_process(executor: Executor) -> None:
    """Counting needs no GPU: `start_s` is that of the process, and the first job's alone."""
    first, second = executor.run(job("params", device="cuda")), executor.run(job("flops", device="cuda"))
    other = executor.run(job("params", device="cuda", batch_size=2))
    assert {outcome.status for outcome in (first, second, other)} == {"measured"}
    assert [outcome.start_s is None for outcome in (first, second, other)] == [False, True, False]
    assert None not in {executor.run(job(metric)).start_s for metric in ("params", "flops")}  # on a CPU each has its own


def test_a_shared_process_in_which_a_job_failed_takes_no_other_and_one_that_dies_is_replaced(executor: Executor) -> None:
    """After some errors of CUDA every later call fails too."""
    executor.run(job("params", device="cuda"))
    assert executor.run(job("memory", device="cuda")).status == "failed"
    after = executor.run(job("flops", device="cuda"))
    assert (after.status, after.start_s is None) == ("measured", False)
    assert executor._worker is not None
    os.kill(executor._worker.process.pid, signal.SIGKILL)
    killed, after = executor.run(job("flops", device="cuda")), executor.run(job("params", device="cuda"))
    assert (killed.status, after.status) == ("killed", "measured")


def test_a_cache_that_is_still_written_to_does_not_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's inductor compiles in a process of its own, which may outlive the job."""

    def still_in_use(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOTEMPTY, "Directory not empty")

    with Executor() as started:
        folder = Path(started._compiled.name)
        monkeypatch.setattr("os.rmdir", still_in_use)
    monkeypatch.undo()
    assert folder.is_dir()
    folder.rmdir()


@pytest.mark.slow
def test_a_folder_with_packages_of_these_names_is_no_part_of_the_program(tmp_path: Path) -> None:
    """It would be first on the path of an interpreter that is started there."""
    for name, content in (("bench", "raise SystemError"), ("models", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(content)
    flags = "run --models gmlp --seq 17 --width 32 --depth 1 --metrics params,flops,memory --device cpu --out run".split()
    start = "import sys; sys.path.remove(''); from bench.cli import main; main(sys.argv[1:])"
    ended = subprocess.run(
        [sys.executable, "-c", start, *flags], cwd=tmp_path, capture_output=True, text=True, env=PROGRAM_ENVIRONMENT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "measured" in (tmp_path / "run" / "table.csv").read_text()
