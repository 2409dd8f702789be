"""What each thing may cost, as a multiple of a reference that is timed in the same run. docs/benchmarks.md says how they were chosen."""

from __future__ import annotations

MIXER_LIMIT = 5.0
"""Of a mixer that names none of its own: what most of ours keep to. Adding a mixer needs no line here."""
MIXER_REFERENCES = ("matrix product", "copy")


class Limits(dict[str, float]):
    """Limits by `step / reference`. A step beside a mixer's reference has the mixers' limit where it has no line; any other name is a KeyError."""

    def __missing__(self, name: str) -> float:
        if name.partition(" / ")[2] not in MIXER_REFERENCES:
            raise KeyError(name)
        return MIXER_LIMIT


LIMITS = Limits(
    {
        # start of the program, against `python -c pass`
        "bench --help / python": 10.0,
        # planning and reporting, against `import pandas`
        "plan of 10,000 cells / import pandas": 12.0,
        "10,000 budget searches / import pandas": 30.0,
        "report of 10,000 rows / import pandas": 100.0,
        # against 100,000 rounds of a loop in Python
        "budget search / loop": 2.0,
        "table of 10,000 rows / loop": 1200.0,
        # against the same bytes, written and flushed to the disk
        "record append / fsync": 4.0,
        # a model's forward against matrix products of equal FLOPs
        "gmlp / matrix product": 3.0,
        "vit / matrix product": 3.0,
        "transformer / matrix product": 3.0,
        # a mixer's forward, likewise, where it is not the mixers' limit; those without a matrix product against one copy of the tokens
        "additive_attention / matrix product": 45.0,
        "attention / matrix product": 3.0,
        "depthwise_convolution / matrix product": 2.0,
        "gated_projection / matrix product": 4.0,
        "identity / copy": 1.0,
        "kernel_attention / matrix product": 4.0,
        "window_attention / matrix product": 4.0,
    }
)
