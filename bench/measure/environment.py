"""Collect facts about machine and software.

Only this module and `bench.measure.cpu` inspect the machine; `bench.measure.hosts` compares the facts of two machines.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import itertools
import os
import platform
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import bench
from bench import catalog
from bench.measure.allocator import KEEP, allocator_name
from bench.measure.cpu import cpu_facts
from bench.measure.hosts import gpu_type, identity
from bench.serialize import content_id
from bench.spec import RequestError
from models.layers.plugins import Plugin

BUSY_WINDOW_S = 0.5
CONTROL_GROUP = Path("/sys/fs/cgroup")
FOLDERS = re.compile(r"(?<==)/\S*/")
"""The folder of a file that a setting names, as in `CXX_COMPILER=/usr/bin/c++`."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TIMED_CODE = (
    *("models/**/*.py", "bench/measure/engines/**/*.py", "bench/timing_groups.py", "bench/metrics/latency.py", "bench/planning/timing.py"),
    *(f"bench/measure/{name}.py" for name in ("allocator", "kernel_time", "kernels", "model", "processors", "step", "timer")),
    *("bench/fork_server.py", "bench/running/executors/process.py"),
    *(f"bench/running/{name}.py" for name in ("child", "interleave", "worker")),
)
"""Files that determine a time, relative to the folder that holds `bench`.

They hold the models, kernels and engines, and the code that times them.
"""
TIMED_KINDS = ("families", "mixers", "engines")
"""Kinds of plugins that determine a time, when an installed package declares them."""


def inspect_environment(*, threads: int, device: str) -> dict[str, Any]:
    """Return all facts about machine and software; unknown facts are None.

    Units: memory in bytes, clocks in MHz, load in processes.
    """
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        **cpu_facts(),
        "num_cores": num_cores(),
        "threads": threads,
        "allocator": f"{allocator_name() or 'unknown'}, {KEEP}",
        "memory_bytes": _memory().total,
        "memory_available_bytes": available_memory_bytes(),
        "cpu_governor": _first_line(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
        "load": load(),
        "busy_cores": busy_cores(),
        "operating_system": f"{platform.system()} {platform.release()}",
        "boot": boot(),
        "python_version": platform.python_version(),
        "packages": packages(),
        "plugins": {f"{plugin.kind} {plugin.name}": plugin.origin for plugin in catalog.from_packages(*catalog.FOLDERS)},
        "torch_version": _version("torch"),
        **torch_facts(),
        "device": device,
        **code_facts(),
        "work_version": work_version(),
        **gpu_facts(),
    }
    facts["gpu_type"] = gpu_type(facts)
    facts["environment_id"] = environment_id(facts)
    return facts


def environment_id(facts: Mapping[str, Any]) -> str:
    """Hash the facts that identify an environment (`bench.measure.hosts.identity`)."""
    return content_id(identity(facts))


def resolve_device(wanted: str) -> str:
    """Resolve `auto` to `cuda` or `cpu`.

    `cuda` requires a GPU that both NVML and torch see. Raises RequestError if `cuda` is requested but cannot be used.
    """
    if wanted == "cpu":
        return "cpu"
    present = bool(gpu_facts()["gpu"]) and _torch_has_cuda()
    if wanted == "cuda" and not present:
        try:
            import pynvml  # noqa: F401
        except ImportError as error:
            raise RequestError(
                "`device=cuda` needs the package nvidia-ml-py, which is not installed", "pip install nvidia-ml-py"
            ) from error
        raise RequestError("`device=cuda` was requested, but this machine has no CUDA GPU that torch can use", "try `device=cpu`")
    return "cuda" if present else "cpu"


def num_cores() -> int:
    """Return the number of cores that this process may use, within the control group's quota of time."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota, *period = (_first_line(CONTROL_GROUP / "cpu.max") or "max").split()
    return min(found, max(1, int(quota) // int(period[0]))) if quota.isdigit() and period else found


def boot() -> str | None:
    """Return a short hash of the kernel's boot id.

    It stays the same until the machine restarts. The id itself is never stored.
    """
    found = _first_line(BOOT_ID)
    return hashlib.sha256(found.encode()).hexdigest()[:8] if found else None


def load() -> float:
    """Return the one-minute load average in processes."""
    return round(os.getloadavg()[0], 2)


def available_memory_bytes() -> int:
    """Return the available memory in bytes, within the control group's limit."""
    limit, used = (_first_line(CONTROL_GROUP / name) for name in ("memory.max", "memory.current"))
    found: int = _memory().available
    return min(found, max(0, int(limit) - int(used))) if limit and used and limit.isdigit() else found


def _memory() -> Any:
    import psutil

    return psutil.virtual_memory()


def busy_cores(seconds: float = BUSY_WINDOW_S) -> float:
    """Return the time that others use of the processors that this process may use, in cores. It sleeps for `seconds`."""
    import psutil

    found = psutil.cpu_percent(seconds, percpu=True)
    own = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(found))
    return round(sum(float(found[core]) for core in own if core < len(found)) / 100, 2)


GPU_FACTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "gpu": lambda nvml, gpu: nvml.nvmlDeviceGetName(gpu),
    "gpu_count": lambda nvml, _: nvml.nvmlDeviceGetCount(),
    "gpu_processes": lambda nvml, gpu: sum(p.pid != os.getpid() for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),
    "gpu_memory_bytes": lambda nvml, gpu: int(nvml.nvmlDeviceGetMemoryInfo(gpu).total),
    "gpu_driver": lambda nvml, _: nvml.nvmlSystemGetDriverVersion(),
    "gpu_capability": lambda nvml, gpu: ".".join(map(str, nvml.nvmlDeviceGetCudaComputeCapability(gpu))),
    "gpu_cores": lambda nvml, gpu: nvml.nvmlDeviceGetNumGpuCores(gpu),
    "gpu_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "gpu_max_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM),
    "gpu_memory_clock_mhz": lambda nvml, gpu: nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
    "gpu_throttle_reasons": lambda nvml, gpu: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "gpu_power_w": lambda nvml, gpu: nvml.nvmlDeviceGetPowerUsage(gpu) / MILLI,
    "gpu_power_limit_w": lambda nvml, gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / MILLI,
    "gpu_temperature_c": lambda nvml, gpu: nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
    "gpu_ecc": lambda nvml, gpu: bool(nvml.nvmlDeviceGetEccMode(gpu)[0]),
    "gpu_persistence": lambda nvml, gpu: bool(nvml.nvmlDeviceGetPersistenceMode(gpu)),
    "gpu_compute_mode": lambda nvml, gpu: nvml.nvmlDeviceGetComputeMode(gpu),
    "cuda_version": lambda *_: _torch().version.cuda,
    "cudnn_version": lambda *_: _torch().backends.cudnn.version(),
}
"""Queries for the first visible GPU, by name of the fact.

Clocks are in MHz, power in watts; throttle reasons and compute mode are NVML's numbers.
"""
MILLI = 1000.0


def gpu_facts() -> dict[str, Any]:
    """Return the GPU_FACTS of the first visible GPU.

    A fact is None if the GPU does not report it, as in some virtual machines. Without a GPU all are None.
    """
    with visible_gpu() as query:
        return {name: query(name) for name in GPU_FACTS}


@contextlib.contextmanager
def visible_gpu() -> Iterator[Callable[[str], Any]]:
    """Yield a function that queries one of GPU_FACTS by name.

    It asks the first GPU that CUDA sees, through NVML, without starting CUDA.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no library, no driver or no permission: in each case no GPU can be queried
        yield lambda _: None
        return
    gpu = None
    with contextlib.suppress(pynvml.NVMLError):
        gpu = _first_visible_gpu(pynvml)

    def query(name: str) -> Any:
        with contextlib.suppress(pynvml.NVMLError, AttributeError):  # refused by the GPU, or absent from this version of NVML
            return None if gpu is None else GPU_FACTS[name](pynvml, gpu)
        return None

    try:
        yield query
    finally:
        pynvml.nvmlShutdown()


def _first_visible_gpu(pynvml: Any) -> Any:
    """Return the NVML handle of the GPU that CUDA calls 0.

    CUDA_VISIBLE_DEVICES names it by index, or by the UUID of a GPU or MIG slice. Raises NVMLError if that variable hides every
    GPU, as "" and "-1" do.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    if first.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(first))
    if first.startswith(("GPU-", "MIG-")):
        return pynvml.nvmlDeviceGetHandleByUUID(first)
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)


def code_facts() -> dict[str, Any]:
    """Return version, git revision, and whether there are uncommitted changes.

    GMLP_BENCH_REVISION names the revision of a copy, whatever git says there. Without it and without git, the file REVISION does, in the package of a
    wheel or beside the packages: there `changed` behind the revision makes `git_dirty` True. In all other cases it is None.
    """
    folder = program_folder()
    revision, dirty = os.environ.get("GMLP_BENCH_REVISION", "").strip() or None, None
    if not revision and (revision := _git(folder, "rev-parse", "HEAD")):
        status = _git(folder, "status", "--porcelain", "--", "bench", "models", "ablations")
        dirty = None if status is None else bool(status)
    if not revision and (built_from := _first_line(folder / "bench" / "REVISION") or _first_line(folder / "REVISION")):
        revision, _, changed = built_from.partition(" ")
        dirty = bool(changed) or None
    short = f"+{revision[:10]}" if revision else ""
    return {
        "git_revision": revision,
        "git_dirty": dirty,
        "code_version": f"{bench.__version__}{short}{'.dirty' if dirty else ''}",
    }


def work_version() -> str:
    """Hash the code that determines a time, and the version of torch.

    The code is TIMED_CODE without comments and docstrings, and the packages of plugins of TIMED_KINDS. The hash has 16 hexadecimal digits.
    """
    start = f"{_version('torch')}{package_code(catalog.from_packages(*TIMED_KINDS))}"
    return hash_of({path for pattern in TIMED_CODE for path in program_folder().glob(pattern)}, start)


def package_code(plugins: Iterable[Plugin]) -> str:
    """Hash all source files of the packages that declare these plugins; "" without any."""
    files = {place: path for plugin in plugins for place, path in plugin.files.items()}
    return content_id({place: hashlib.sha256(path.read_bytes()).hexdigest() for place, path in files.items()}) if files else ""


@functools.cache
def packages() -> Mapping[str, str]:
    """Return the version of every installed distribution, by name; of two of one name, of that which is imported."""
    from importlib import metadata  # as in `_version`

    found = [distribution.metadata for distribution in metadata.distributions()]
    return {name: facts["Version"] for facts in reversed(found) if (name := facts["Name"])}


def torch_facts() -> dict[str, Any]:
    """Return what torch was built from, by which compilers and flags, for which versions of CUDA and ROCm; the last are None in other builds.

    Compilers have no folders, which say nothing elsewhere.
    """
    built = _torch().version
    return {
        "torch_git_revision": built.git_version,
        "torch_cuda": built.cuda,
        "torch_hip": built.hip,
        "torch_config": FOLDERS.sub("", " ".join(_torch().__config__.show().split())),
    }


def program_folder() -> Path:
    """Return the folder that holds the packages."""
    return Path(bench.__file__).resolve().parent.parent


def hash_of(files: Collection[Path], start: str = "") -> str:
    """Hash the files' code and their places in the program's folder, after `start`.

    The hash has 16 hexadecimal digits.
    """
    found, folder = hashlib.sha256(start.encode()), program_folder()
    for path in sorted(files):
        content = without_prose(path.read_text(encoding="utf-8")).encode()
        found.update(f"\n{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def without_prose(source: str) -> str:
    """Remove comments, docstrings and blank lines, which change no time.

    The text is cut, not printed from a syntax tree, so that every version of Python gives the same result.
    """
    lines, starts = source.split("\n"), True  # splitlines would also split at form feeds within a line
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(source).readline) if token.type != tokenize.NL]
    cut = []
    for token, following in itertools.pairwise(tokens):
        is_docstring = starts and token.type == tokenize.STRING and following.type in (tokenize.NEWLINE, tokenize.COMMENT)
        if is_docstring or token.type == tokenize.COMMENT:
            cut.append((token.start, token.end))
        elif token.type not in (tokenize.INDENT, tokenize.DEDENT):
            starts = token.type == tokenize.NEWLINE
    for (first, left), (last, right) in reversed(cut):
        lines[first - 1 : last] = [lines[first - 1][:left] + lines[last - 1][right:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


def _git(folder: Path, *arguments: str) -> str | None:
    import subprocess

    if not (folder / ".git").exists():
        return None
    # git refuses another user's checkout; trusting its configuration is no riskier than running its code
    command = ["git", "--no-optional-locks", "-c", f"safe.directory={folder}", "-C", str(folder), *arguments]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip()


def _torch_has_cuda() -> bool:
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # count GPUs without starting CUDA in this process
    return bool(_torch().cuda.is_available())


def _torch() -> Any:
    import torch

    return torch


def _version(package: str) -> str | None:
    from importlib import metadata  # imports the email package, too slow for every start of the program

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _first_line(path: Path) -> str | None:
    try:
        return path.read_text().strip() or None
    except OSError:
        return None
