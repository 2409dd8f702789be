"""Make the memory allocator keep freed memory. Imports no torch.

glibc's malloc returns large blocks to the system when they are freed, and takes them back page fault by page fault in the next
step. The number of faults depends on the blocks that happen to lie at the end of the heap: the same step of the same model takes
between 0 and tens of thousands of faults from one process to the next. That is a property of the heap, not of the model
(mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

KEEP = "keep"
"""The policy of timed jobs."""
GLIBC = "libc.so.6"
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # from glibc's malloc.h
NEVER_TRIM, NO_MMAP = -1, 0
FAULT_S = 2e-6
"""Time of one page fault. A thousand took one or two milliseconds in the runs examined."""
_keeping: list[bool] = []  # results of mallopt in this process, since glibc has no way to read the settings back


def keep_freed_memory() -> bool:
    """Make glibc's malloc keep freed memory; return whether it now does.

    All blocks then come from the heap, which only grows, and freed blocks are reused. Returns False under any other allocator.
    """
    if allocator_name() != GLIBC:
        return False
    library = ctypes.CDLL(None)
    # both calls must run: an untrimmed heap does not help blocks that are mapped one by one
    kept = all([library.mallopt(M_MMAP_MAX, NO_MMAP), library.mallopt(M_TRIM_THRESHOLD, NEVER_TRIM)])
    _keeping.append(kept)
    return kept


def effective_allocator() -> str:
    """Name the allocator's file, and say whether freed memory is kept."""
    kept = ["freed memory kept"] if any(_keeping) else []
    return ", ".join([allocator_name() or "unknown", *kept])


def allocator_name() -> str:
    """Return the file that `malloc` comes from; "" if unknown.

    Examples: libc.so.6, libjemalloc.so.2.
    """
    library, found = ctypes.CDLL(None), _Symbol()
    known = library.dladdr(ctypes.cast(library.malloc, ctypes.c_void_p), ctypes.byref(found)) and found.file
    return Path(found.file.decode(errors="replace")).name if known else ""


def fault_counter() -> Callable[[], int] | None:
    """Return a counter of page faults that needed no disk.

    It counts the faults of this process only. None if the system does not count them.
    """
    try:
        import resource
    except ImportError:
        return None
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt


class _Symbol(ctypes.Structure):
    """The struct Dl_info of dlfcn.h."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )
