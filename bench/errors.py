"""Classify a job's exceptions and shorten them to one line."""

from __future__ import annotations

OUT_OF_MEMORY_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "not enough memory", "alloc_failed")
MAX_REASON = 300
"""Length limit of a reason, in characters."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception means that memory ran out.

    CUDA raises OutOfMemoryError, a RuntimeError. The CPU allocator raises a plain RuntimeError, so its message is searched.
    """
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY_SIGNS)


def one_line(error: BaseException) -> str:
    """Return the first non-empty line of the message, shortened.

    An error without a message yields the name of its type. Characters that cannot be encoded (from file names) become question marks.
    """
    text = str(error).encode(errors="replace").decode()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:MAX_REASON] if lines else type(error).__name__
