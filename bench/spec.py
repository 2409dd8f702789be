"""The nouns: frozen dataclasses that flow from flags to records, their canonical JSON and their ids. Imports no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from models.layers.cost import Cost, Polynomial, Term
from models.layers.dropout import DEFAULT_PLACES, DROPOUT_PLACES
from models.layers.shape import ADDED_LATER, Interface, Shape, require_one_of

SCHEMA_VERSION = 1
ID_LENGTH = 12

PHASES = ("infer", "train")
DTYPES = ("fp32", "bf16", "bf16-autocast")
ENGINES = ("eager", "compile")
ATTENTION_BACKENDS = ("auto", "flash", "efficient", "cudnn", "math")
NO_ATTENTION = "none"
MATCH_POLICIES = ("params", "flops", "shape")
NO_MATCH = "none"
BUDGET_SCOPES = ("all", "blocks")
DEVICES = ("cpu", "cuda")
SCHEDULES = ("cosine", "constant", "plateau")
PRECISIONS = ("fp32", "bf16-autocast")
AUGMENTATIONS = ("crop", "flip", "randaugment", "mixup", "cutmix", "erasing")
NO_TEACHER = "none"
TEACHERS = (NO_TEACHER, "convolution")
DISTILLATIONS = ("soft", "hard")

HIGHER, LOWER, EQUAL = "higher", "lower", "equal"
EXPECTATIONS = (HIGHER, LOWER, EQUAL)

MEASURED = "measured"
PREDICTED = "predicted"
DIVERGED = "diverged"

OptionValue = str | int | bool


class RequestError(ValueError):
    """The request was wrong: one line saying what was asked and what is allowed, and a hint: what to type next."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One resolved model. `name` is what the user asked for: a family with options, or a published variant."""

    name: str
    family: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    shape: Shape
    interface: Interface = Interface()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What a model is asked to do. `attention` is the kernel asked for, `none` for a model without attention; `task` empty: synthetic data.

    `recipe`: how the model is trained, where that is not the plan's recipe (None: by the plan's).
    """

    batch_size: int = 32
    phase: str = "infer"
    engine: str = "eager"
    dtype: str = "fp32"
    device: str = "cpu"
    attention: str = "auto"
    task: str = ""
    recipe: Recipe | None = field(default=None, metadata=ADDED_LATER)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One resolved model x workload; its id depends on nothing else (no metric, round, seed or budget)."""

    model: ModelSpec
    workload: Workload

    @property
    def cell_id(self) -> str:
        return content_id(self)


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """How a cell's size came about and what it costs in closed form.

    `budget`: parameters asked for (None: sizes set outright or published). `budget_error`: signed relative error of the matched quantity (parameters,
    or FLOPs against the reference). `params_seq`: parameters that depend on seq_len. `heads`: None
    for a family without them. `terms`: the cost, as polynomials in n.
    """

    match: str
    budget: int | None
    budget_error: float | None
    params: int
    params_seq: int
    params_blocks: int
    heads: int | None
    terms: tuple[Term, ...]

    @property
    def cost(self) -> Cost:
        return Cost(self.terms)


@dataclass(frozen=True, kw_only=True)
class PlannedCell:
    cell: Cell
    sizing: Sizing


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A combination that was asked for and cannot be run, and why."""

    model: str
    seq_len: int
    budget: int | None
    reason: str
    nearest_params: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """One of the choices that a part compares: its cells, by their ids. `facts`: what is known of it beforehand, shown beside what was measured."""

    name: str
    cells: tuple[str, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Cells of a plan that were asked for together, by their ids, under one policy of matching and one of batching.

    A cell may be in several parts: the shape that is kept as n grows is the matched one at its first length. `batching` is empty where every
    cell names its own batch size. `arms`: the choices that are compared with the one named `baseline`; none where the part compares nothing.
    """

    name: str
    match: str
    batching: str
    cells: tuple[str, ...]
    arms: tuple[PlannedArm, ...] = field(default=(), metadata=ADDED_LATER)
    baseline: str = field(default="", metadata=ADDED_LATER)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What an ablation expects of one arm of a part against another (empty: the part's baseline), and which effect would count.

    `measure`: of `bench.analysis.effects.MEASURES`. `expected`: `higher` or `lower` by more than `by`, or `equal` within it: in points of an accuracy
    or score, as a fraction for ratios of costs (0.05: 5 %). `seq_len`: the length that it is about (None: every one). `because`: the reason.
    """

    part: str
    arm: str
    against: str = ""
    measure: str = "accuracy"
    expected: str
    by: float = 0.0
    seq_len: int | None = None
    because: str = ""

    def __post_init__(self) -> None:
        require_one_of("expected", self.expected, EXPECTATIONS)
        if self.by < 0:
            raise ValueError(f"by must be zero or more, not {self.by:g}")


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a plan asks, as the file in `ablations/` states it: the question, and its text with prediction and source."""

    text: str
    statement: str
    predictions: tuple[Prediction, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One choice of a grid: the flags in which it differs from the grid's own. `facts`: see `PlannedArm`."""

    name: str
    flags: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Grid:
    """One part of an ablation, in the words of the command line: `flags` maps the names of flags, with underscores, to their text.

    With `arms`, the grid is planned once for each of them, and each is compared with the one named `baseline` (empty: the first).
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
    """The constant of a file in `ablations/`: what answers its question on each kind of device, and in a first look.

    `predictions`: what would be seen if the file's prediction is right. `rounds` and `sample_s` are those of a full run: many short visits tell
    more than few long ones.
    """

    cpu: tuple[Grid, ...]
    cuda: tuple[Grid, ...]
    quick: tuple[Grid, ...]
    predictions: tuple[Prediction, ...] = ()
    rounds: int = 7
    seeds: int = 3
    sample_s: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How measuring is done. Times in seconds; `sample_s` is the sampling time of one latency job; `threads` are CPU threads of a
    timed job, `train_threads` of a training job."""

    rounds: int = 7
    seeds: int = 3
    limit_s: float = 60.0
    sample_s: float = 1.0
    train_limit_s: float = 3600.0
    threads: int = 1
    train_threads: int = 1
    quick: bool = False
    seed: int = 0
    lr_trials: int = field(default=0, metadata=ADDED_LATER)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained, by AdamW.

    `learning_rate` is the peak, after a linear warm-up over `warmup` of all steps; then `schedule`: cosine decay to zero, constant, or halved on a
    plateau of the validation score (more than `patience` epochs without a better one). `early_stop`: epochs without a better validation score after
    which training ends (0: never). A step learns from `accumulate` batches of `batch_size`. `dropout`: share dropped at each of the places
    `dropout_at` (`models.layers.dropout`). `augment`: what is done to images, see `AUGMENTATIONS`; `magnitude`: how strongly RandAugment does it,
    0 to 30. `precision`: fp32 or bf16-autocast. `compile`: whether the model is compiled.

    `teacher`: the network that is trained first, for `teacher_epochs`, and that the model then also learns from (arXiv 2012.12877, Sec. 3):
    by `distillation`, from its softened answers or from its hard choices, with `distillation_weight` of the loss.
    """

    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    validation_fraction: float = 0.1
    schedule: str = field(default="cosine", metadata=ADDED_LATER)
    patience: int = field(default=2, metadata=ADDED_LATER)
    early_stop: int = field(default=0, metadata=ADDED_LATER)
    accumulate: int = field(default=1, metadata=ADDED_LATER)
    dropout: float = field(default=0.0, metadata=ADDED_LATER)
    augment: tuple[str, ...] = field(default=(), metadata=ADDED_LATER)
    precision: str = field(default="fp32", metadata=ADDED_LATER)
    compile: bool = field(default=False, metadata=ADDED_LATER)
    dropout_at: tuple[str, ...] = field(default=DEFAULT_PLACES, metadata=ADDED_LATER)
    magnitude: int = field(default=9, metadata=ADDED_LATER)
    teacher: str = field(default=NO_TEACHER, metadata=ADDED_LATER)
    distillation: str = field(default="soft", metadata=ADDED_LATER)
    distillation_weight: float = field(default=0.5, metadata=ADDED_LATER)
    teacher_epochs: int = field(default=10, metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        require_one_of("schedule", self.schedule, SCHEDULES)
        require_one_of("precision", self.precision, PRECISIONS)
        for name in self.augment:
            require_one_of("augment", name, AUGMENTATIONS)
        if not self.dropout_at:
            raise ValueError(f"dropout_at must name at least one of {', '.join(DROPOUT_PLACES)}; dropout=0 drops nowhere")
        for place in self.dropout_at:
            require_one_of("dropout_at", place, DROPOUT_PLACES)
        require_one_of("teacher", self.teacher, TEACHERS)
        require_one_of("distillation", self.distillation, DISTILLATIONS)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A resolved request: what will be measured, what will not and why, and how. Written before the first measurement."""

    schema: int = SCHEMA_VERSION
    name: str
    command: str
    created: str
    metrics: tuple[str, ...]
    cells: tuple[PlannedCell, ...]
    skipped: tuple[Skipped, ...] = ()
    settings: Settings = Settings()
    recipe: Recipe = Recipe()
    accuracy_seq_lens: tuple[int, ...] = ()
    parts: tuple[Part, ...] = field(default=(), metadata=ADDED_LATER)
    question: Question | None = field(default=None, metadata=ADDED_LATER)

    @property
    def plan_id(self) -> str:
        """Equal for equal work: the name, the command line, the time of planning and the words of the question do not count."""
        return content_id(dataclasses.replace(self, name="", command="", created="", question=None))


@dataclass(frozen=True, kw_only=True)
class Job:
    """One execution in one process. `repeat` is the round, the seed or the trial; `control` marks the second name of the A/A control.
    `shared_id`: what the outcome belongs to where several cells share it (empty: it is the cell's own). `scratch`: a folder
    in which the job may keep what it needs to go on after an interruption (empty: none)."""

    cell: Cell
    metric: str
    repeat: int
    control: bool = False
    settings: Settings = Settings()
    recipe: Recipe | None = None
    shared_id: str = ""
    scratch: str = ""

    @property
    def subject_id(self) -> str:
        """What the outcome belongs to: the cell; for training the model, task and recipe, shared by all cells of that model; `shared_id`."""
        if self.recipe is None:
            return self.shared_id or self.cell.cell_id
        return training_id(self.cell, self.recipe)

    @property
    def key(self) -> tuple[str, str, int, bool]:
        return (self.subject_id, self.metric, self.repeat, self.control)

    @property
    def scratch_name(self) -> str:
        """The name of the job's file in its scratch folder."""
        return f"{self.metric}-{self.subject_id}-{self.repeat}.pt"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a job. `values` are single figures, `samples` raw series (units in the names); `start_s` is the time to start the process."""

    status: str
    reason: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    started_at: str = ""
    start_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line of records.jsonl: an outcome and all that is needed to know what it is the outcome of."""

    schema: int = SCHEMA_VERSION
    subject_id: str
    metric: str
    repeat: int
    control: bool
    environment_id: str
    code_version: str
    outcome: Outcome

    @property
    def key(self) -> tuple[str, str, int, bool]:
        return (self.subject_id, self.metric, self.repeat, self.control)


def is_trained(cell: Cell, plan: Plan) -> bool:
    """Is the cell's model trained in this plan, where accuracy is asked for? At `accuracy_seq_lens`, or at every length."""
    chosen = plan.accuracy_seq_lens
    return bool(cell.workload.task) and (not chosen or cell.model.shape.seq_len in chosen)


def base_recipe(cell: Cell, plan: Plan) -> Recipe:
    """What the cell's model is trained by before any learning rate is tuned: its own recipe, or the plan's."""
    return cell.workload.recipe or plan.recipe


def training_id(cell: Cell, recipe: Recipe) -> str:
    return content_id({"model": to_json(cell.model), "task": cell.workload.task, "recipe": to_json(recipe)})


def to_json(value: Any) -> Any:
    """Plain JSON data of a dataclass, container or scalar."""
    if isinstance(value, Polynomial):
        return list(value.coefficients)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value) if not _is_unused(f, value)}
    if isinstance(value, Mapping):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_json(v) for v in value]
    return value


def _is_unused(added: dataclasses.Field[Any], value: Any) -> bool:
    """Is it a field that older plans lack, at its default?"""
    return bool(added.metadata.get("added_later")) and getattr(value, added.name) == added.default


def from_json(kind: Any, data: Any) -> Any:
    """The inverse of `to_json` for an annotated type. Raises ValueError naming the type and what was found."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return data
    if kind is Polynomial:
        return Polynomial(tuple(from_json(tuple[int, ...], data)))
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_from_json(kind, data)
    if origin in (typing.Union, types.UnionType):
        return _union_from_json(arguments, data)
    if origin is tuple:
        return _tuple_from_json(arguments, data)
    if origin is not None and issubclass(origin, Mapping):
        _require(isinstance(data, Mapping), kind, data)
        return {str(k): from_json(arguments[1], v) for k, v in data.items()}
    if kind is float:
        _require(isinstance(data, (int, float)) and not isinstance(data, bool), kind, data)
        return float(data)
    _require(type(data) is kind or (kind is type(None) and data is None), kind, data)
    return data


def _dataclass_from_json(kind: type, data: Any) -> Any:
    _require(isinstance(data, Mapping), kind, data)
    hints = typing.get_type_hints(kind)
    known = {f.name for f in dataclasses.fields(kind)}
    unknown = sorted(set(data) - known)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {unknown[0]!r}")
    try:
        return kind(**{name: from_json(hints[name], value) for name, value in data.items()})
    except TypeError as error:
        raise ValueError(f"{kind.__name__}: {error}") from error


def _union_from_json(arguments: tuple[Any, ...], data: Any) -> Any:
    for choice in arguments:
        try:
            return from_json(choice, data)
        except ValueError:
            continue
    names = " or ".join(getattr(choice, "__name__", str(choice)) for choice in arguments)
    raise ValueError(f"expected {names}, found {data!r}")


def _tuple_from_json(arguments: tuple[Any, ...], data: Any) -> tuple[Any, ...]:
    _require(isinstance(data, (list, tuple)), tuple, data)
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        if arguments[0] is float and {type(v) for v in data} <= {float, int}:  # raw samples: many, and the same for all
            return tuple(map(float, data))
        return tuple(from_json(arguments[0], v) for v in data)
    _require(len(data) == len(arguments), tuple, data)
    return tuple(from_json(kind, v) for kind, v in zip(arguments, data, strict=True))


def _require(holds: bool, kind: Any, data: Any) -> None:
    if not holds:
        raise ValueError(f"expected {getattr(kind, '__name__', kind)}, found {data!r}")


def canonical_json(value: Any) -> str:
    """One text per value: sorted keys, no spaces, no NaN."""
    return json.dumps(to_json(value), sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_id(value: Any) -> str:
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()[:ID_LENGTH]
