"""The nouns: frozen dataclasses that flow from flags to records. Imports no torch."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.serialize import canonical_json, content_id, id_of_text
from models.layers.cost import Cost, Term
from models.layers.dropout import DEFAULT_PLACES, DROPOUT_PLACES
from models.layers.options import RequestError as RequestError
from models.layers.shape import ADDED_LATER, Interface, Shape, require_one_of

PLAN_SCHEMA, RECORD_SCHEMA = 1, 3

PHASES = ("infer", "train")
DTYPES = ("fp32", "tf32", "bf16", "bf16-autocast")
ATTENTION_BACKENDS = ("auto", "flash", "efficient", "cudnn", "math")
NO_ATTENTION = "none"
MATCH_POLICIES = ("params", "flops", "shape")
NO_MATCH = "none"
CANONICAL, FREE = "canonical", "free"
SIZING_RULES = (CANONICAL, FREE)
COUNTED = "counted"
"""The scope of a cost that was counted at one length, for want of a closed form: it says nothing of how the cost grows."""
BUDGET_SCOPES = ("all", "blocks")
DEVICES = ("cpu", "cuda")
SCHEDULES = ("cosine", "constant", "plateau")
PRECISIONS = ("fp32", "tf32", "bf16-autocast")
AUGMENTATIONS = ("crop", "flip", "randaugment", "mixup", "cutmix", "erasing")
NO_TEACHER = "none"
TEACHERS = (NO_TEACHER, "convolution")
DISTILLATIONS = ("soft", "hard")

HIGHER, LOWER, EQUAL = "higher", "lower", "equal"
EXPECTATIONS = (HIGHER, LOWER, EQUAL)

SWEEP_AXES = ("batch", "seq")

MEASURED = "measured"
PREDICTED = "predicted"
DIVERGED = "diverged"

MUST_AGREE = (
    "cpu_model",
    "num_cores",
    "threads",
    "allocator",
    "gpu",
    "gpu_driver",
    "cuda_version",
    "torch_version",
    "python_version",
    "operating_system",
    "code_version",
)
"""Facts of the environment in which runs must agree to be continued or merged."""
SAME_MACHINE = ("cpu_model", "num_cores", "threads", "allocator", "gpu")
"""Without these in common, times of two runs say nothing of what changed between them."""

PLAN = "plan.json"
"""The file of a run's folder, or of its own, that holds a plan."""

OptionValue = str | int | bool
RecordKey = tuple[str, str, int, bool, str]
"""Subject, metric, repeat, control and timing group."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One resolved model. `name` is what the user asked for: a family with options, or a published variant."""

    name: str
    family: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    shape: Shape
    interface: Interface = Interface()

    @functools.cached_property
    def canonical(self) -> str:
        """Its canonical JSON."""
        return canonical_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
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

    @functools.cached_property
    def cell_id(self) -> str:
        """That of `content_id`; many cells share a model, whose text is written once."""
        return id_of_text(f'{{"model":{self.model.canonical},"workload":{canonical_json(self.workload)}}}')


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """How a cell's size came about and what it costs in closed form. `rule`: of the shapes that were tried for a budget.

    `budget`: parameters asked for (None: sizes set outright or published). `budget_error`: signed relative error of the matched quantity (parameters,
    or FLOPs against the reference). `params_seq`: parameters that depend on seq_len. `heads`: None
    for a family without them. `terms`: the cost, as polynomials in n. Of a model that is not ours the cost is counted, so `params_seq` and
    `params_blocks` are None; `unknown_sizes`: those of the shape that could not be read off it. `ffn_moved`: how far ffn_width is from its family's
    nominal multiple of the width, as a share of it; None where the rule is not canonical.
    """

    match: str
    budget: int | None
    budget_error: float | None
    params: int
    params_seq: int | None
    params_blocks: int | None
    heads: int | None
    terms: tuple[Term, ...]
    unknown_sizes: tuple[str, ...] = field(default=(), metadata=ADDED_LATER)
    rule: str = field(default=FREE, metadata=ADDED_LATER)
    ffn_moved: float | None = field(default=None, metadata=ADDED_LATER)

    @functools.cached_property
    def cost(self) -> Cost:
        return Cost(self.terms)

    @property
    def is_counted(self) -> bool:
        """Whether the cost is known at the cell's own length only."""
        return any(term.scope == COUNTED for term in self.terms)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCell:
    cell: Cell
    sizing: Sizing

    def size(self, name: str) -> int | None:
        """A size of the model's shape; None where it is not known, as that of a model that is not ours may be."""
        if name == "heads":
            return self.sizing.heads
        found: int = getattr(self.cell.model.shape, name)
        return None if name in self.sizing.unknown_sizes else found


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
class Sweep:
    """Cells of growing batch size or length, up to the largest that fits a memory: by their ids, smallest first.

    `axis`: `batch` or `seq`. `memory_bytes`: what a step may hold, and `memory_source` where that figure is from. `largest`: the last batch size or
    seq_len at which a step fits by prediction, with `peak_bytes`. `beyond`: the next one that was looked at, with `beyond_bytes` (None: it was not
    predicted), and `ends_because` says why it is not in the sweep. A sweep that time cuts short has no cell at `largest`.
    """

    axis: str
    cells: tuple[str, ...]
    memory_bytes: int
    memory_source: str
    largest: int
    peak_bytes: int
    beyond: int
    beyond_bytes: int | None
    ends_because: str

    def __post_init__(self) -> None:
        require_one_of("axis", self.axis, SWEEP_AXES)


@dataclass(frozen=True, kw_only=True)
class Measure:
    """A quantity that arms are compared in: as a difference, or as a ratio of costs. `title` names what is compared, `value` what one arm has of it
    (empty: the same). `timed`: does noise touch it?"""

    name: str
    title: str
    is_ratio: bool
    timed: bool = False
    value: str = ""

    @property
    def unit(self) -> str:
        return "ratio" if self.is_ratio else "difference"


MEASURES = {
    measure.name: measure
    for measure in (
        Measure(name="accuracy", title="accuracy", is_ratio=False),
        Measure(name="exact_accuracy", title="exact sequences", is_ratio=False),
        Measure(name="score", title="minus squared error", is_ratio=False, value="R2"),
        Measure(name="perplexity", title="perplexity", is_ratio=True),
        Measure(name="params", title="parameters", is_ratio=True),
        Measure(name="flops", title="FLOPs", is_ratio=True),
        Measure(name="latency_ms", title="latency", is_ratio=True, timed=True),
        Measure(name="activation_bytes", title="activations", is_ratio=True),
        Measure(name="train_flops", title="training FLOPs", is_ratio=True),
        Measure(name="output_error", title="output error", is_ratio=False),
    )
}


FASTEST_PEER, EVERY_ARM = "the fastest peer", "every arm"
"""Sides of a prediction that are not one arm: at each place the peer of the smallest median, and all arms of the part."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What an ablation expects of one arm of a part against another (empty: the part's baseline), and which effect would count.

    `measure`: of `MEASURES`. `expected`: `higher` or `lower` by more than `by`, or `equal` within it: in points of an accuracy
    or score, as a fraction for ratios of costs (0.05: 5 %). `seq_len`: the length that it is about (None: every one). `because`: the reason.

    `at_most`: a bound on the ratio or error itself, in place of `by`; with `mean`, on the geometric mean over all places. `places`: the lengths and
    batch sizes that it is for; a run of other places cannot support it.
    """

    part: str
    arm: str
    against: str = ""
    measure: str = "accuracy"
    expected: str
    by: float = 0.0
    seq_len: int | None = None
    because: str = ""
    at_most: float | None = field(default=None, metadata=ADDED_LATER)
    mean: bool = field(default=False, metadata=ADDED_LATER)
    places: tuple[tuple[int, int], ...] = field(default=(), metadata=ADDED_LATER)

    def __post_init__(self) -> None:
        require_one_of("expected", self.expected, EXPECTATIONS)
        if self.by < 0:
            raise ValueError(f"by must be zero or more, not {self.by:g}")

    @property
    def is_target(self) -> bool:
        """Whether it is about our models beside all their peers, instead of one arm against another."""
        return self.against == FASTEST_PEER or self.arm == EVERY_ARM


POOLED = "pooled unless one stands out"
"""The spread over seeds of arms that stand beside each other (docs/decisions/0014)."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a plan asks, as the file in `ablations/` states it: the question, and its text with prediction and source.

    `seed_spread`: how the spread over seeds is estimated (`POOLED`); empty in plans of before it was fixed in them.
    """

    text: str
    statement: str
    predictions: tuple[Prediction, ...] = ()
    seed_spread: str = field(default="", metadata=ADDED_LATER)


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
    more than few long ones. `growth`: see `Settings`.
    """

    cpu: tuple[Grid, ...]
    cuda: tuple[Grid, ...]
    quick: tuple[Grid, ...]
    predictions: tuple[Prediction, ...] = ()
    rounds: int = 7
    seeds: int = 3
    sample_s: float = 1.0
    growth: bool = True


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How measuring is done. Times in seconds; `sample_s` is the sampling time of one latency job; `threads` are CPU threads of a
    timed job, `train_threads` of a training job. `allocator`: `keep` where jobs keep the memory that they free (`bench.measure.allocator`). `cold`:
    on CUDA, steps are also timed with the L2 cache overwritten before each. `margin`: latencies are equal whose ratio is
    shown to lie between 1 + margin and its inverse. `growth`: each model is also timed over all its lengths in turn, for exponents."""

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
    allocator: str = field(default="system", metadata=ADDED_LATER)
    cold: bool = field(default=False, metadata=ADDED_LATER)
    margin: float = field(default=0.03, metadata=ADDED_LATER)
    growth: bool = field(default=True, metadata=ADDED_LATER)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained, by AdamW.

    `learning_rate` is the peak, after a linear warm-up over `warmup` of all steps; then `schedule`: cosine decay to zero, constant, or halved on a
    plateau of the validation score (more than `patience` epochs without a better one). `early_stop`: epochs without a better validation score after
    which training ends (0: never). A step learns from `accumulate` batches of `batch_size`. `dropout`: share dropped at each of the places
    `dropout_at` (`models.layers.dropout`). `augment`: what is done to images, see `AUGMENTATIONS`; `magnitude`: how strongly RandAugment does it,
    0 to 30. `precision`: fp32, tf32 (products on CUDA) or bf16-autocast. `compile`: whether the model is compiled.

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

    @functools.cached_property
    def canonical(self) -> str:
        """Its canonical JSON."""
        return canonical_json(self)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A resolved request: what will be measured, what will not and why, and how. Written before the first measurement."""

    schema: int = PLAN_SCHEMA
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
    ladders: tuple[Sweep, ...] = field(default=(), metadata=ADDED_LATER)  # the name that stored plans have for sweeps

    @property
    def plan_id(self) -> str:
        """Equal for equal work: the name, the command line, the time of planning and the words of the question do not count."""
        return content_id(dataclasses.replace(self, name="", command="", created="", question=None))


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One execution in one process. `repeat` is the round, the seed or the trial; `control` marks the second name of the A/A control.
    `shared_id`: what the outcome belongs to where several cells share it (empty: it is the cell's own). `scratch`: a folder
    in which the job may keep what it needs to go on after an interruption (empty: none). `group`: the timing group that it takes turns in
    (`bench.planning.timing`; empty: it runs alone), with `num_blocks` bursts of `num_calls` calls."""

    cell: Cell
    metric: str
    repeat: int
    control: bool = False
    settings: Settings = Settings()
    recipe: Recipe | None = None
    shared_id: str = ""
    scratch: str = ""
    group: str = ""
    num_calls: int = 0
    num_blocks: int = 0

    @property
    def subject_id(self) -> str:
        """What the outcome belongs to: the cell; for training the model, task and recipe, shared by all cells of that model; `shared_id`."""
        if self.recipe is None:
            return self.shared_id or self.cell.cell_id
        return training_id(self.cell, self.recipe)

    @property
    def key(self) -> RecordKey:
        return (self.subject_id, self.metric, self.repeat, self.control, self.group)

    @property
    def scratch_name(self) -> str:
        """The name of the job's file in its scratch folder."""
        return f"{self.metric}-{self.subject_id}-{self.repeat}.pt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a job. `values` are single figures, `samples` raw series (units in the names); `start_s` is the time to start the process."""

    status: str
    reason: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    started_at: str = ""
    start_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One line of records.jsonl: an outcome and all that is needed to know what it is the outcome of.

    `group`: the timing group whose bursts were interleaved (empty: measured alone). The samples of its members are one per block, in equal order.
    """

    schema: int = RECORD_SCHEMA
    subject_id: str
    metric: str
    repeat: int
    control: bool
    environment_id: str
    code_version: str
    outcome: Outcome
    group: str = ""

    @property
    def key(self) -> RecordKey:
        return (self.subject_id, self.metric, self.repeat, self.control, self.group)


def is_trained(cell: Cell, plan: Plan) -> bool:
    """Is the cell's model trained in this plan, where accuracy is asked for? At `accuracy_seq_lens`, or at every length."""
    chosen = plan.accuracy_seq_lens
    return bool(cell.workload.task) and (not chosen or cell.model.shape.seq_len in chosen)


def base_recipe(cell: Cell, plan: Plan) -> Recipe:
    """What the cell's model is trained by before any learning rate is tuned: its own recipe, or the plan's."""
    return cell.workload.recipe or plan.recipe


def training_id(cell: Cell, recipe: Recipe) -> str:
    """That of `content_id` of model, recipe and task, in the order of their names; many cells share a model, and most a recipe."""
    return id_of_text(f'{{"model":{cell.model.canonical},"recipe":{recipe.canonical},"task":{canonical_json(cell.workload.task)}}}')
