"""What an exception means for a job: running out of memory, or failing; and how to say it in one line."""

from __future__ import annotations

OUT_OF_MEMORY_SIGNS = ("out of memory", "can't allocate memory", "cannot allocate memory", "bad_alloc", "not enough memory", "alloc_failed")
MAX_REASON = 300


def is_out_of_memory(error: BaseException) -> bool:
    """CUDA raises OutOfMemoryError, a RuntimeError; the CPU allocator raises a plain RuntimeError that is known by its words."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY_SIGNS)


def one_line(error: BaseException) -> str:
    """The first line of the message that says something, shortened; the kind of error where there is none.

    What is no Unicode, as in the name of a file, becomes a question mark: no file takes it otherwise.
    """
    text = str(error).encode(errors="replace").decode()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0][:MAX_REASON] if lines else type(error).__name__
