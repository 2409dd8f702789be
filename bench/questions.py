"""The frozen dataclasses of questions: an ablation's grids, the measures that compare arms, and what is predicted.

- An `Ablation` is a question whose plan is written in a file of `ablations/`, as `Grid`s of command-line flags.
- A `Prediction` is an effect that it expects between two arms, in one `Measure`.
- A `Question` is what a plan stores of it.

Nothing here names a cell or changes an id. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from models.layers.shape import require_one_of

HIGHER, LOWER, EQUAL = "higher", "lower", "equal"
SOLVES, FAILS = "solves", "fails"
EXPECTATIONS = (HIGHER, LOWER, EQUAL, SOLVES, FAILS)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity in which arms are compared.

    `title`: its name in a comparison.
    `is_ratio`: True if compared as a ratio of costs, False as a difference.
    `metric`: the metric that measures it; empty for what the plan knows.
    `value`: its name for a single arm; empty if equal to `title`.
    `in_points`: whether differences are written in points, hundredths.
    """

    name: str
    title: str
    metric: str
    is_ratio: bool
    value: str = ""
    in_points: bool = False

    @property
    def unit(self) -> str:
        """Return `ratio` or `difference`."""
        return "ratio" if self.is_ratio else "difference"


MEASURES = {
    measure.name: measure
    for measure in (
        Measure(name="accuracy", title="accuracy", metric="accuracy", is_ratio=False, in_points=True),
        Measure(name="exact_accuracy", title="exact sequences", metric="accuracy", is_ratio=False, in_points=True),
        Measure(name="score", title="minus squared error", metric="accuracy", is_ratio=False, value="R2"),
        Measure(name="perplexity", title="perplexity", metric="accuracy", is_ratio=True),
        Measure(name="params", title="parameters", metric="", is_ratio=True),
        Measure(name="flops", title="FLOPs", metric="flops", is_ratio=True),
        Measure(name="latency_ms", title="latency", metric="latency", is_ratio=True),
        Measure(name="activation_bytes", title="activations", metric="memory", is_ratio=True),
        Measure(name="train_flops", title="training FLOPs", metric="accuracy", is_ratio=True),
    )
}


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The effect that an ablation expects between two arms, or that an arm solves its task.

    `part`: name of the part.
    `arm`: name of the arm.
    `against`: the other arm; empty for the part's baseline.
    `measure`: a name in MEASURES.
    `expected`: `higher` or `lower` by more than `by`, or `equal` within `by`; `solves` or `fails`: more or fewer than half of the seeds solve the
        task, whatever another arm does.
    `by`: the smallest effect that counts: a difference in accuracy or score, or a fraction of a cost ratio (0.05 is 5 %; lower by it is below 0.95).
    `seq_len`: the length it holds for; None for every length.
    `because`: the reason.
    `device`: the device that it is for, such as `cpu`; empty for any. A run on another device does not judge it.

    Raises ValueError if `expected` is unknown, `by` is negative, or a ratio is to be lower by 1 or more.
    """

    part: str
    arm: str
    against: str = ""
    measure: str = "accuracy"
    expected: str
    by: float = 0.0
    seq_len: int | None = None
    because: str = ""
    device: str = ""

    @property
    def is_about_solving(self) -> bool:
        return self.expected in (SOLVES, FAILS)

    def __post_init__(self) -> None:
        require_one_of("expected", self.expected, EXPECTATIONS)
        if self.by < 0:
            raise ValueError(f"by must be zero or more, not {self.by:g}")
        measure = MEASURES.get(self.measure)  # whoever plans the question names an unknown one
        if self.expected == LOWER and self.by >= 1 and measure and measure.is_ratio:
            raise ValueError(f"no cost is lower by {self.by:.0%}: by must be below 1")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One effect that a finding names: of `arm` on `measure`, against the part's baseline unless `against` says otherwise.

    The pair is one that the report estimates anyway: an arm and its baseline, or the two of a prediction.

    `seq_len`: the length; None where the part has one.
    `model`: the model, where a variant has several.
    `phase`: the phase, where the part has several.
    """

    part: str
    arm: str
    against: str = ""
    measure: str = "accuracy"
    seq_len: int | None = None
    model: str = ""
    phase: str = ""


@dataclass(frozen=True, kw_only=True)
class PaysFrom:
    """The lengths between which `arm` becomes faster than `against`, the part's baseline if empty."""

    part: str
    arm: str
    against: str = ""


@dataclass(frozen=True, kw_only=True)
class LeastState:
    """The least state among `arms` with which most seeds solve a part's task.

    The arms are those of one mixer.
    """

    part: str
    arms: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A sentence of a question's answer, with `{}` for each effect that it is `about`.

    It is left out of the answer of a run that lacks one of them.
    """

    text: str
    about: tuple[Asked | PaysFrom | LeastState, ...]


OWN_SPREADS = "each pair's own variances, degrees of freedom by Satterthwaite"
"""How the spread over seeds is estimated; plans until 2026-11-27 pooled it."""

ONE_INTERVAL = (
    "seeds unpaired, test items paired, rounds paired; variances of seeds and items add; Student's t, degrees of freedom by Satterthwaite; "
    "joint 95 % over the effects on one measure at one place of a part"
)
"""Pool seeds and test items, or rounds, into one interval per effect.

See docs/decisions/0007 and 0012.
"""


@dataclass(frozen=True, kw_only=True)
class Question:
    """The question that a plan answers, from a file in `ablations/`.

    `text`: the question, the first line of the file's docstring.
    `statement`: the rest of that docstring, with prediction and source.
    `predictions`: the effects that are expected.
    `seed_spread`: how the spread over seeds is estimated (OWN_SPREADS); empty if the plan did not fix it.
    `interval`: how seeds, test items and rounds become one interval (ONE_INTERVAL); empty if the plan did not fix it.
    """

    text: str
    statement: str
    predictions: tuple[Prediction, ...] = ()
    seed_spread: str = ""
    interval: str = ""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One variant of a grid.

    `flags`: flags that replace the grid's own, by name.
    `facts`: facts known before measuring (see `PlannedArm`).
    """

    name: str
    flags: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


def predict(
    part: str,
    of: Arm | str,
    expected: str,
    because: str,
    *,
    by: float = 0.0,
    against: Arm | str = "",
    measure: str = "accuracy",
    seq_len: int | None = None,
    device: str = "",
) -> Prediction:
    """Return a prediction about an arm, given itself or by its name. The arguments are the fields of `Prediction`."""
    arm, other = (each if isinstance(each, str) else each.name for each in (of, against))
    return Prediction(
        part=part, arm=arm, against=other, measure=measure, expected=expected, by=by, seq_len=seq_len, because=because, device=device
    )


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One part of an ablation, written as command-line flags.

    `flags`: text of each flag, by name with underscores.
    `arms`: variants; the grid is planned once for each.
    `baseline`: name of the arm that the others are compared with; empty for the first.

    Raises ValueError if two arms share a name or the baseline is not an arm.
    """

    name: str
    flags: Mapping[str, str]
    arms: tuple[Arm, ...] = ()
    baseline: str = ""

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if len(set(names)) < len(names):
            raise ValueError(f"the arms of grid {self.name!r} must have different names, not {', '.join(names)}")
        if self.baseline and self.baseline not in names:
            raise ValueError(f"the baseline of grid {self.name!r} must be one of {', '.join(names)}, not {self.baseline!r}")


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The grids that answer a question; each file in `ablations/` defines one.

    `cpu`, `cuda`: grids of a full run on that kind of device.
    `quick`: grids of a first look, on any device.
    `predictions`: the effects that are expected.
    `findings`: the sentences that answer the question; without one, the largest effects are named.
    `rounds`: timing rounds of a full run.
    `seeds`: training seeds of a full run.
    `sample_s`: sampling time of one latency job in a full run, in seconds.
    `growth`: see `Settings`.
    `lr_trials`: learning rates tried per trained model of a full run; 0 tunes nothing.
    """

    cpu: tuple[Grid, ...]
    cuda: tuple[Grid, ...]
    quick: tuple[Grid, ...]
    predictions: tuple[Prediction, ...] = ()
    findings: tuple[Finding, ...] = ()
    rounds: int = 20
    seeds: int = 3
    sample_s: float = 1.0
    growth: bool = True
    lr_trials: int = 0
