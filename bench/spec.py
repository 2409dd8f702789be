"""The frozen dataclasses that flow from flags to records: what is hashed or stored per cell and job.

- A `Cell` is one configuration: a model (`ModelSpec`) and a workload (`Workload`). Users read "configuration".
- A `Plan` lists cells (`PlannedCell`), combinations that cannot run (`Skipped`), `Settings`, and a training `Recipe`.
- A `Part` groups cells that were requested together. Its arms (`PlannedArm`) are the variants that it compares.
- A plan becomes `Job`s. Each job runs in one process, and its `Outcome` is stored as a `Record`.
- A latency job runs once per round; `Job.repeat` is the number of the round.

What a plan asks is in `bench.questions`. In all docstrings n is the sequence length. Imports no torch.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.questions import Question
from bench.serialize import canonical_json, content_id, id_of_text
from models.layers.cost import Cost, Polynomial, Term
from models.layers.dropout import DEFAULT_PLACES, DROPOUT_PLACES
from models.layers.options import RequestError as RequestError
from models.layers.options import option_text
from models.layers.shape import Interface, Shape, require_one_of

SCHEMA = "1.0"
"""Version of the form of plans and records. A field that is added, with a default, does not change it."""

PHASES = ("infer", "train")
DTYPES = ("fp32", "tf32", "bf16", "bf16-autocast")
ACTIVATION_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "bf16-autocast": 2}
"""Bytes of one number between layers, by dtype."""
EXPLICIT = "math"
"""The kernel that writes the n x n scores."""
ATTENTION_BACKENDS = ("auto", "flash", "efficient", "cudnn", EXPLICIT)
NO_ATTENTION = "none"
MATCH_POLICIES = ("params", "flops", "state", "shape")
NO_MATCH = "none"
CANONICAL, FREE = "canonical", "free"
COUNTED = "counted"
"""Scope of a cost that was counted at one length.

Its model has no closed form. Such a cost says nothing about growth with n.
"""
BUDGET_SCOPES = ("all", "blocks")
DEVICES = ("cpu", "cuda")
SCHEDULES = ("cosine", "constant", "plateau", "step", "exponential", "one-cycle")
OPTIMIZERS = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD with momentum", "muon": "Muon and AdamW"}
AUTO = "auto"
PRECISIONS = ("fp32", "tf32", "bf16-autocast")
GRAPH = "graph"
TRAINING_ENGINES = ("eager", GRAPH)
AUGMENTATIONS = ("crop", "flip", "randaugment", "mixup", "cutmix", "erasing")
NO_TEACHER = "none"
TEACHERS = (NO_TEACHER, "convolution")
DISTILLATIONS = ("soft", "hard")

LATENCY, ACCURACY, TUNING = "latency", "accuracy", "tuning"
PILOT = "pilot"
"""Metric of the pilot, whose times are not reported."""
COMPARE, GROWTH = "compare", "growth"
"""First words of the names of timing groups (`bench.timing_groups`)."""
MEASURED = "measured"
PREDICTED = "predicted"
DIVERGED = "diverged"

MS_PER_S = 1e3

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
    "cpu_type",
    "gpu_type",
    "work_version",
)
"""Environment facts that must agree to continue or merge runs. `work_version` is a hash of the timed code."""
SAME_MACHINE = ("cpu_model", "num_cores", "threads", "allocator", "gpu")
"""Times of two runs are comparable only if these environment facts agree."""

PLAN = "plan.json"
"""Name of the plan file in a run's folder."""
WEIGHTS = "weights"
"""Folder of the trained weights in a run's folder."""

OptionValue = str | int | bool
RecordKey = tuple[str, str, int, bool, str]
"""(subject id, metric, repeat, control, timing group)."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model with all sizes resolved.

    `name`: the requested name, such as a family with options or a published variant.
    `family`: the architecture, a file in `models/`.
    `options`: values of the family's options, by name.
    """

    name: str
    family: str
    options: tuple[tuple[str, OptionValue], ...] = ()
    shape: Shape
    interface: Interface = Interface()

    @functools.cached_property
    def canonical(self) -> str:
        return canonical_json(self)

    @property
    def digest(self) -> str:
        """Return the digest of the code of a user's own file or object; empty for other models."""
        return str(dict(self.options).get("digest", "")) if self.family == "python" else ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The work that a model does in a measurement.

    `batch_size`: samples per step.
    `phase`: one of PHASES: forward only, or a whole training step.
    `engine`: how the model is executed, with options (`bench/measure/engines/`).
    `attention`: the requested attention kernel, or NO_ATTENTION for a model without attention.
    `task`: the data set; empty for synthetic data.
    `recipe`: the training recipe; None for the plan's.
    `code`: the revision whose code runs it; empty for this one.
    """

    batch_size: int = 32
    phase: str = "infer"
    engine: str = "eager"
    dtype: str = "fp32"
    device: str = "cpu"
    attention: str = "auto"
    task: str = ""
    recipe: Recipe | None = None
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration: a model and its workload.

    Its id depends on nothing else: not on metric, round, seed or budget.
    """

    model: ModelSpec
    workload: Workload

    @functools.cached_property
    def cell_id(self) -> str:
        """Return the cell's `content_id`.

        Many cells share a model, so the text is built from the model's cached JSON.
        """
        return id_of_text(f'{{"model":{self.model.canonical},"workload":{canonical_json(self.workload)}}}')


@dataclass(frozen=True, kw_only=True)
class Sizing:
    """How a cell's sizes were chosen, and their cost.

    The cost of a model from outside this repository is counted, not closed form: its `params_seq` and `params_blocks` are None.

    `match`: the matching policy, one of MATCH_POLICIES, or NO_MATCH.
    `budget`: requested parameters; None if the sizes were given or published.
    `budget_error`: signed relative error of the matched quantity: parameters, or FLOPs or the state against the reference.
    `params`: all trained parameters.
    `params_seq`: parameters in terms that depend on seq_len.
    `params_blocks`: parameters of the blocks.
    `heads`: attention heads; None for a family without heads.
    `terms`: the cost, as polynomials in n, without their shares of the state.
    `unknown_sizes`: names of the shape's sizes that are unknown for a model from outside.
    `rule`: CANONICAL, or FREE at a given width.
    `ffn_moved`: relative distance of ffn_width from its nominal value; None unless `rule` is canonical.
    `state`: numbers that the model carries from token to token, after n of them; None where a token reads later ones, and for models from outside.
    `is_staircase`: whether the polynomials do not hold at the next lengths, because tokens fill up whole chunks or blocks.
    """

    match: str
    budget: int | None
    budget_error: float | None
    params: int
    params_seq: int | None
    params_blocks: int | None
    heads: int | None
    terms: tuple[Term, ...]
    unknown_sizes: tuple[str, ...] = ()
    rule: str = FREE
    ffn_moved: float | None = None
    state: Polynomial | None = None
    is_staircase: bool = False

    @functools.cached_property
    def cost(self) -> Cost:
        return Cost(self.terms)

    @property
    def is_counted(self) -> bool:
        """Return whether the cost is known only at the cell's own length."""
        return any(term.scope == COUNTED for term in self.terms)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedCell:
    """A cell of a plan, with its sizing.

    `seeds`: the seeds planned for it, in a plan merged from several; None for those of the settings.
    """

    cell: Cell
    sizing: Sizing
    seeds: int | None = None

    @property
    def state_bytes(self) -> int | None:
        """Return the bytes of the state after n tokens, with every number in the dtype of the activations; None if it is unknown."""
        state, n = self.sizing.state, self.cell.model.shape.seq_len
        return None if state is None else ACTIVATION_BYTES[self.cell.workload.dtype] * state.at(n)

    def size(self, name: str) -> int | None:
        """Return a size of the model's shape; None if it is unknown."""
        if name == "heads":
            return self.sizing.heads
        found: int = getattr(self.cell.model.shape, name)
        return None if name in self.sizing.unknown_sizes else found


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """A requested combination that cannot run, with the reason.

    `budget`: requested parameters; None without a budget.
    `nearest_params`: parameters of the nearest shape found; None if no shape could be built.
    """

    model: str
    seq_len: int
    budget: int | None
    reason: str
    nearest_params: int | None = None


@dataclass(frozen=True, kw_only=True)
class PlannedArm:
    """One variant that a part compares.

    `cells`: ids of its cells.
    `facts`: facts known before measuring; reports show them beside the results.
    """

    name: str
    cells: tuple[str, ...]
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Cells of a plan that were requested together.

    A cell may be in several parts: at its shortest length, a shape kept as n grows equals the matched one.

    `match`: the matching policy of the part, or several joined by commas.
    `batching`: text such as "65600 tokens per batch"; empty if every cell has its own batch size.
    `cells`: ids of its cells.
    `arms`: the variants that the part compares; empty if it compares nothing.
    `baseline`: name of the arm that the others are compared with.
    `metrics`: the metrics that its cells are measured for; empty for all of the plan's.
    """

    name: str
    match: str
    batching: str
    cells: tuple[str, ...]
    arms: tuple[PlannedArm, ...] = ()
    baseline: str = ""
    metrics: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a plan is measured.

    `rounds`: timing rounds.
    `seeds`: training seeds.
    `limit_s`: time limit of a job, in seconds.
    `sample_s`: sampling time of one latency job, in seconds.
    `train_limit_s`: time limit of a training job, in seconds.
    `threads`: CPU threads of a timed job.
    `train_threads`: CPU threads of a training job.
    `quick`: whether this is a first look, with few rounds and short limits.
    `seed`: seed of weights, data and the order of jobs.
    `lr_trials`: learning rates tried per model at first; 0 tunes nothing (`bench.planning.tuning`).
    `decay_trials`: weight decays tried per model at its best learning rate; 0 tries none.
    `cold`: on CUDA, also time steps with the L2 cache overwritten before each.
    `margin`: two latencies are equal if their ratio is shown to lie between 1 / (1 + margin) and 1 + margin.
    `growth`: whether each model is also timed over all its lengths in turn, to fit exponents.
    `parts_apart`: whether the arms of a part take turns with each other alone, not with those of other parts of equal length and work.
    `save_weights`: whether the weights of each training are kept in the run's folder (`bench.measure.weights`).
    """

    rounds: int = 7
    seeds: int = 3
    limit_s: float = 60.0
    sample_s: float = 1.0
    train_limit_s: float = 3600.0
    threads: int = 1
    train_threads: int = 1
    quick: bool = False
    seed: int = 0
    lr_trials: int = 0
    decay_trials: int = 0
    cold: bool = False
    margin: float = 0.03
    growth: bool = True
    parts_apart: bool = False
    save_weights: bool = False


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model is trained.

    `epochs`: passes over the training data.
    `batch_size`: samples of one batch; a step learns from `accumulate` batches.
    `learning_rate`: the peak, reached by linear warm-up.
    `weight_decay`: strength of the decay of matrices, decoupled from the gradient in AdamW.
    `warmup`: fraction of all steps spent warming up.
    `label_smoothing`: probability that the target spreads over all classes.
    `clip_norm`: largest norm of the gradient.
    `validation_fraction`: share of the training data held out for validation.
    `schedule`: after warm-up: cosine decay to zero, constant, halved on a plateau of the validation score, a tenth after each of two steps, or
        exponential decay to a hundredth; one-cycle has a warm-up of its own (`bench.training.optimizer`).
    `optimizer`: of torch: AdamW, Adam (weight decay as part of the gradient) or SGD with Nesterov momentum 0.9; Muon for the
        matrices of hidden layers, with AdamW for all else.
    `stochastic_depth`: probability that a sample skips the updates of the last block, less in earlier ones (`models.layers.dropout`).
    `ema`: decay per step of the exponential moving average of the weights, which is then scored and kept; 0 scores the weights themselves.
    `patience`: epochs without a better validation score before `plateau` halves the rate.
    `early_stop`: epochs without a better validation score before training ends; 0 never ends early.
    `epoch_items`: training items of an epoch, drawn anew for each; 0 takes all.
    `until_solved`: whether training ends after the first epoch in which the validation score reaches the one at which the task counts as solved.
    `accumulate`: batches per step.
    `dropout`: probability of dropping a channel at each place in `dropout_at`.
    `dropout_at`: places of dropout (`models.layers.dropout`).
    `augment`: image augmentations.
    `precision`: of matrix products; tf32 on CUDA alone.
    `compile`: whether torch.compile is used.
    `magnitude`: strength of RandAugment.
    `teacher`: the network that is trained first, and then distilled (arXiv 2012.12877, Sec. 3).
    `distillation`: learn from the teacher's softened outputs (`soft`) or from its decisions (`hard`).
    `distillation_weight`: share of the loss that comes from the teacher.
    `teacher_epochs`: training epochs of the teacher.
    `engine`: what runs a step; graph replays it as a CUDA graph.
    `init`: the weights to begin with: a run that kept them, or a file (`bench.measure.weights`); empty for fresh ones.
    `init_sha256`: first digits of the sha256 of these weights, which planning fills in.

    Raises ValueError for an unknown word.
    """

    epochs: int = 10
    batch_size: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 0.05
    warmup: float = 0.1
    label_smoothing: float = 0.1
    clip_norm: float = 1.0
    validation_fraction: float = 0.1
    schedule: str = "cosine"
    patience: int = 2
    early_stop: int = 0
    accumulate: int = 1
    dropout: float = 0.0
    augment: tuple[str, ...] = ()
    precision: str = "fp32"
    compile: bool = False
    dropout_at: tuple[str, ...] = DEFAULT_PLACES
    magnitude: int = 9
    teacher: str = NO_TEACHER
    distillation: str = "soft"
    distillation_weight: float = 0.5
    teacher_epochs: int = 10
    engine: str = "eager"
    optimizer: str = "adamw"
    ema: float = 0.0
    stochastic_depth: float = 0.0
    init: str = ""
    init_sha256: str = ""
    epoch_items: int = 0
    until_solved: bool = False

    def __post_init__(self) -> None:
        require_one_of("schedule", self.schedule, SCHEDULES)
        require_one_of("optimizer", self.optimizer, tuple(OPTIMIZERS))
        require_one_of("precision", self.precision, PRECISIONS)
        require_one_of("engine", self.engine, TRAINING_ENGINES)
        for name in self.augment:
            require_one_of("augment", name, AUGMENTATIONS)
        if not self.dropout_at:
            raise ValueError(f"dropout_at must name at least one of {', '.join(DROPOUT_PLACES)}; dropout=0 disables dropout")
        for place in self.dropout_at:
            require_one_of("dropout_at", place, DROPOUT_PLACES)
        require_one_of("teacher", self.teacher, TEACHERS)
        require_one_of("distillation", self.distillation, DISTILLATIONS)

    @functools.cached_property
    def canonical(self) -> str:
        return canonical_json(self)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A resolved request; a run stores it before its first measurement.

    `schema`: version of the file format.
    `name`: name of the run, a plain folder name.
    `command`: the command line that made the plan.
    `created`: time of planning, ISO 8601 in UTC.
    `metrics`: names of the metrics to measure.
    `cells`: the configurations to measure, in order.
    `skipped`: requested combinations that cannot run.
    `recipe`: the training recipe of cells without their own.
    `accuracy_seq_lens`: lengths at which models are trained; empty for all.
    `parts`: groups of cells; empty if the plan is a single request.
    `question`: the question it answers; None for an ordinary run.
    """

    schema: str = SCHEMA
    name: str
    command: str
    created: str
    metrics: tuple[str, ...]
    cells: tuple[PlannedCell, ...]
    skipped: tuple[Skipped, ...] = ()
    settings: Settings = Settings()
    recipe: Recipe = Recipe()
    accuracy_seq_lens: tuple[int, ...] = ()
    parts: tuple[Part, ...] = ()
    question: Question | None = None

    @property
    def plan_id(self) -> str:
        """Return an id that is equal for equal work.

        Name, command line, time of planning, question, the words of skip reasons and states, which older plans lack, do not count.
        """
        skipped = tuple(dataclasses.replace(found, reason="") for found in self.skipped)
        cells = tuple(
            dataclasses.replace(found, sizing=dataclasses.replace(found.sizing, state=None, is_staircase=False)) for found in self.cells
        )
        return content_id(dataclasses.replace(self, name="", command="", created="", question=None, skipped=skipped, cells=cells))

    @functools.cached_property
    def seeds_by_cell(self) -> Mapping[str, int]:
        """Return the number of seeds planned for each cell."""
        return {planned.cell.cell_id: self.settings.seeds if planned.seeds is None else planned.seeds for planned in self.cells}

    def metrics_of(self, cell: Cell) -> tuple[str, ...]:
        """Return the metrics that a cell is measured for, in the plan's order."""
        if not self.parts:
            return self.metrics
        wanted = self._metrics_by_cell.get(cell.cell_id, frozenset(self.metrics))
        return tuple(metric for metric in self.metrics if metric in wanted)

    @functools.cached_property
    def _metrics_by_cell(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for part in self.parts:
            for cell_id in part.cells:
                found[cell_id] = found.get(cell_id, frozenset()) | frozenset(part.metrics or self.metrics)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """One measurement in one process.

    `repeat`: number of the round, seed or trial.
    `control`: whether this is the second process of the A/A control.
    `recipe`: the training recipe; None for a job that trains nothing.
    `shared_id`: id of an outcome that several cells share; empty if the outcome is the cell's own.
    `cells`: ids of the cells that share the outcome; empty for one that is the cell's own.
    `scratch`: folder for files that let the job resume after an interruption; empty for none.
    `run_folder`: folder of the run, which holds the code of a user's own models (`bench.peers.own_code`).
    `group`: the timing group in which it takes turns (`bench.timing_groups`); empty if it runs alone.
    `beside`: name of the trainings with which it takes turns, where the executor runs one at a time; empty if it runs alone.
    `num_calls`: calls of one burst, in a timing group.
    `num_blocks`: bursts of the round, in a timing group.
    """

    cell: Cell
    metric: str
    repeat: int
    control: bool = False
    settings: Settings = Settings()
    recipe: Recipe | None = None
    shared_id: str = ""
    cells: tuple[str, ...] = ()
    scratch: str = ""
    run_folder: str = ""
    group: str = ""
    beside: str = ""
    num_calls: int = 0
    num_blocks: int = 0

    @property
    def subject_id(self) -> str:
        """Return the id under which the outcome is stored.

        A training outcome belongs to model, task and recipe, so all cells of that model share it. Any other belongs to `shared_id`
        or to the cell.
        """
        if self.recipe is None:
            return self.shared_id or self.cell.cell_id
        return training_id(self.cell, self.recipe)

    @property
    def key(self) -> RecordKey:
        """Return the key that the job's record will have."""
        return (self.subject_id, self.metric, self.repeat, self.control, self.group)

    @property
    def scratch_name(self) -> str:
        """Return the name of the job's file in its scratch folder."""
        return f"{self.metric}-{self.subject_id}-{self.repeat}.pt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """The result of a job.

    `status`: `measured`, or the kind of failure.
    `reason`: one line about a failure.
    `values`: single figures by name; names end in units.
    `samples`: raw series by name; names end in units.
    `started_at`: start of the execution, ISO 8601 in UTC.
    `start_s`: time to start the process, in seconds.
    `duration_s`: time of the job, in seconds.
    """

    status: str
    reason: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    started_at: str = ""
    start_s: float | None = None
    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One line of records.jsonl: an outcome with its key.

    `schema`: version of the line format.
    `subject_id`: see `Job.subject_id`.
    `environment_id`, `code_version`: the environment and the code that produced it.
    `group`: the timing group whose bursts were interleaved; empty if measured alone. Its members have one sample per block, in equal order.
    `cells`: ids of the cells that share the outcome; empty for one that is the subject's own.
    """

    schema: str = SCHEMA
    subject_id: str
    metric: str
    repeat: int
    control: bool
    environment_id: str
    code_version: str
    outcome: Outcome
    group: str = ""
    cells: tuple[str, ...] = ()

    @property
    def key(self) -> RecordKey:
        """Return the key of the job that produced it."""
        return (self.subject_id, self.metric, self.repeat, self.control, self.group)

    @property
    def cell_ids(self) -> tuple[str, ...]:
        """Return the ids of the cells that the outcome is for."""
        return self.cells or (self.subject_id,)


def is_trained(cell: Cell, plan: Plan) -> bool:
    """Return whether a plan that measures accuracy trains the cell's model.

    Models are trained at `accuracy_seq_lens`, or at every length if that is empty.
    """
    chosen = plan.accuracy_seq_lens
    return bool(cell.workload.task) and (not chosen or cell.model.shape.seq_len in chosen)


def base_recipe(cell: Cell, plan: Plan) -> Recipe:
    """Return the cell's own recipe or the plan's, before tuning."""
    return cell.workload.recipe or plan.recipe


def recipe_changes(recipe: Recipe, base: Recipe) -> str:
    """Return the changes from `base` to `recipe`, as typed in `recipe`."""
    values = ((f.name, getattr(recipe, f.name), getattr(base, f.name)) for f in dataclasses.fields(Recipe))
    return ",".join(f"{name}={option_text(value)}" for name, value, base_value in values if value != base_value)


def training_id(cell: Cell, recipe: Recipe) -> str:
    """Return the `content_id` of the cell's model, the recipe and the task.

    Many cells share a model and a recipe, so the text is built from their cached JSON.
    """
    return id_of_text(f'{{"model":{cell.model.canonical},"recipe":{recipe.canonical},"task":{canonical_json(cell.workload.task)}}}')
