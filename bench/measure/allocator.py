"""Which memory allocator a job runs on, and whether it keeps what is freed for the next step. Imports no torch.

glibc's malloc gives large blocks back to the system as soon as they are free, and takes them again, page fault by page fault, at the next step. How
many depends on what happens to lie at the end of the heap: the same step of the same model takes from 0 to tens of thousands of faults, by
processes, which is a property of the heap and of no model (mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

KEEP, SYSTEM = "keep", "system"
ALLOCATORS = (KEEP, SYSTEM)
GLIBC = "libc.so.6"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0
_keeping: list[bool] = []  # answers of the attempts in this process, which glibc cannot be asked for


def keep_freed_memory() -> bool:
    """Have this process keep what it frees, where its allocator is glibc's. Returns whether that is so now.

    All blocks then come from the heap, which only grows; what is freed is given out again.
    """
    library = _c_library()
    if library is None or allocator_name() != GLIBC:
        return False
    # both, always: a heap that is never trimmed is of no use to blocks that are mapped one by one
    kept = all([library.mallopt(M_MMAP_MAX, NO_MMAP), library.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)])
    _keeping.append(kept)
    return kept


def effective_allocator() -> str:
    """What this process allocates by: the allocator's file, and that freed memory is kept where it is."""
    kept = ["freed memory kept"] if any(_keeping) else []
    return ", ".join([allocator_name() or "unknown", *kept])


def allocator_name() -> str:
    """The file that `malloc` comes from, such as libc.so.6 or libjemalloc.so.2; "" where the system does not tell."""
    library = _c_library()
    if library is None or not hasattr(library, "dladdr") or not hasattr(library, "malloc"):
        return ""
    found = _Symbol()
    if not library.dladdr(ctypes.cast(library.malloc, ctypes.c_void_p), ctypes.byref(found)) or not found.file:
        return ""
    return Path(found.file.decode(errors="replace")).name


def fault_counter() -> Callable[[], int] | None:
    """Counts this process's page faults that needed no disk; None where the system does not count them."""
    try:
        import resource
    except ImportError:
        return None
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class _Symbol(ctypes.Structure):
    """Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):  # a system whose process cannot be opened as a library
        return None
