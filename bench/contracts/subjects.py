"""What the contracts run over: families and mixers with every value of every option, one varied at a time and all at once."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bench import catalog
from models.layers.cost import Cost, Term
from models.layers.halves import num_source_tokens
from models.layers.options import reference_config
from models.layers.shape import INPUTS, OUTPUTS, Interface, Shape, num_data_tokens

LENGTHS = (17, 65, 197, 257, 1025, 4097, 16385, 65537)
FEW_LENGTHS = (17, 257, 4097)
"""Three fix a polynomial of degree two."""
EVERY_DAY = (17, 257)
HALVES = (2, 18)
"""The shortest length, and another even one, for families that read a source and a target."""
WIDTH = 16
NUMBERS = (0, 1, 3, 4)
"""Values tried for an option that is a number; those that the config refuses are no values of it."""
EDGES: dict[str, list[dict[str, Any]]] = {
    "delta_rule": [{"chunk": 16}, {"chunk": 16, "causal": True, "gated": False}],
    "linear_attention": [{"causal": True, "chunk": chunk} for chunk in (1, 3)],
    "low_rank_attention": [{"rank": 3, "share": True}],
    "spatial_gating": [{"heads": 4, "head_mix": "mean", "rank": 1}, {"heads": 4, "gating": "linear", "toeplitz": True}],
    "state_space": [{"chunk": 1}, {"chunk": 3, "causal": True}],
}
"""Choices of mixers beyond those below: several chunks at `SMALL`, chunks of one token, and several matrices of each form."""
EVERYWHERE = max(LENGTHS)
MIXER_SIZES = ("seq_len", "width")
INTERFACES = tuple(Interface(input=kind, output=output) for output in OUTPUTS for kind in INPUTS if kind != "images")
"""Images are the same patches in another order: tests/models/test_images.py holds the answers to them to be those to patches."""
POINTS = Interface(patch_dim=3, num_classes=1, output="tokens")
"""Points (x, y, is y asked for), each answered with a number: what the families read that are made for nothing else."""
NONSENSE = "nonsense"


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One architecture under one choice of options, at any seq_len, built on the current default device.

    `name` of its module, a family's if `is_family`. `reference` is the formulation that the counters see whole, one token after another if it
    `is_stepwise`; `is_counted`: its training is counted every day. `data` is one sample, `(1, ...)`; modules answer
    `(1, outputs)`, or `(1, data tokens, outputs)`. `is_plain`: without options, and of a family on what it reads first. `halves`: it reads a
    source and a target. `reached`: the tokens whose answers a token may change, at any seq_len, from that token's place; all of them do where it
    `knows_reach`. `reads_data`: what the data hold reaches the answer.
    """

    name: str
    label: str
    is_family: bool
    is_plain: bool
    halves: bool
    is_stepwise: bool
    reached: Callable[[int], range]
    reads_data: bool
    config: Callable[[int], Any]
    build: Callable[[int], nn.Module]
    reference: Callable[[int], nn.Module]
    data: Callable[[int], Tensor]
    cost: Callable[[int], Cost]
    reference_cost: Callable[[int], Cost]
    is_counted: bool = True
    knows_reach: bool = True

    @property
    def lengths(self) -> tuple[int, ...]:
        """Where FLOPs are counted by the slow tests."""
        return LENGTHS if self.is_plain else FEW_LENGTHS

    @property
    def every_day(self) -> tuple[int, ...]:
        """Where FLOPs are counted whenever tests are run."""
        if not self.is_plain or not self.is_family:
            return EVERY_DAY if self.is_plain else EVERY_DAY[:1]
        return (*EVERY_DAY[:1], *(HALVES if self.halves else ()))

    def places(self, num_short: int, num_tokens: int) -> Tensor:
        """`(num_tokens,)` bool: where among an item's data tokens those of a shorter one lie; either half begins where the longer one's does."""
        at = torch.arange(num_tokens)
        if not self.halves:
            return at < num_short
        source, longer = num_source_tokens(num_short), num_source_tokens(num_tokens)
        return (at < source) | ((at >= longer) & (at < longer + num_short - source))


def every_subject(of_families: Iterable[str], of_mixers: Iterable[str]) -> Iterator[Subject]:
    """Subjects of these families and mixers; those are counted that have a term which none of the name before them has."""
    counted: set[tuple[str, Term]] = set()
    for subject in (*families(of_families), *mixers(of_mixers)):
        terms = {(subject.name, term) for term in subject.cost(17).terms}
        yield dataclasses.replace(subject, is_counted=not terms <= counted)
        counted |= terms


def families(names: Iterable[str]) -> list[Subject]:
    """Each family on patches with every choice of options; on tokens, and answering at every token, with none and with all that go together.

    What a family's config refuses to read or to answer is left out.
    """
    found = []
    for family in names:
        first, *others = interfaces(family)
        defaults = family_defaults(family)
        found += [family_subject(family, first, chosen) for chosen in choices(family_config(family, first), defaults)]
        for interface in others:
            few = ({}, *combinations(family_config(family, interface), defaults))
            found += [family_subject(family, interface, chosen) for chosen in few]
        if catalog.load("families", family).USES_HEADS:
            found.append(family_subject(family, first, {}, heads=4))
    return found


def interfaces(family: str) -> tuple[Interface, ...]:
    """What a family can read and answer, patches to a class first; points where it refuses all else."""
    accepted = tuple(interface for interface in INTERFACES if not refusal(family_config(family, interface), {}))
    return accepted or (POINTS,)


def mixers(names: Iterable[str]) -> list[Subject]:
    """Each mixer with every choice of options."""
    return [
        mixer_subject(name, chosen)
        for name in names
        for chosen in (*choices(mixer_config(name), mixer_defaults(name)), *EDGES.get(name, ()))
    ]


def family_config(family: str, interface: Interface, *, seq_len: int = 17, depth: int = 2, heads: int = 2) -> Callable[..., Any]:
    """`(**options) -> Config`, at small sizes."""
    shape = Shape(seq_len=seq_len, width=WIDTH, depth=depth, heads=heads, ffn_width=2 * WIDTH)
    module = catalog.load("families", family)
    return lambda **options: module.Config(shape=shape, interface=interface, **options)


def mixer_config(name: str, *, seq_len: int = 17) -> Callable[..., Any]:
    module = catalog.load("mixers", name)
    return lambda **options: module.Config(seq_len=seq_len, width=WIDTH, **options)


def family_defaults(family: str) -> dict[str, Any]:
    return {option.name: option.default for option in catalog.options(family)}


def mixer_defaults(name: str) -> dict[str, Any]:
    fields = dataclasses.fields(catalog.load("mixers", name).Config)
    return {field.name: field.default for field in fields if field.name not in MIXER_SIZES}


def choices(config: Callable[..., Any], defaults: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """No option; each other value of each option (the last that a number can have), with the first other option that it needs; the combinations."""
    values = {name: found[-1:] if type(defaults[name]) is int else found for name, found in _other_values(config, defaults).items()}
    others = [{name: value} for name, found in values.items() for value in found]
    singles = [_accepted(config, single, others) for single in others]
    yield {}
    yield from singles
    yield from (chosen for chosen in combinations(config, defaults) if chosen not in singles)


def _accepted(config: Callable[..., Any], single: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The choice itself, or where it is refused, with one other option that lets it be."""
    pairs = (single, *(single | other for other in others if not single.keys() & other.keys()))
    found = next((chosen for chosen in pairs if not refusal(config, chosen)), None)
    assert found, f"{single} goes with no other option: {refusal(config, single)}"
    return found


def combinations(config: Callable[..., Any], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every option at the last of its other values, as far as they go together, filled from the first option on and from the last."""
    last = [(name, values[-1]) for name, values in _other_values(config, defaults).items() if values]
    forward, backward = _filled(config, last), _filled(config, last[::-1])
    return [chosen for chosen in ([forward] if forward == backward else [forward, backward]) if chosen]


def _filled(config: Callable[..., Any], pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Twice over, for an option that needs a later one."""
    chosen: dict[str, Any] = {}
    for name, value in pairs * 2:
        if not refusal(config, {**chosen, name: value}):
            chosen[name] = value
    return chosen


def _other_values(config: Callable[..., Any], defaults: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {name: [v for v in option_values(config, name, default) if v != default] for name, default in defaults.items()}


def option_values(config: Callable[..., Any], name: str, default: Any) -> list[Any]:
    """All values of a choice, taken from the message that refuses another; both booleans; the numbers that are not refused."""
    if isinstance(default, bool):
        return [False, True]
    if isinstance(default, str):
        return allowed_words(refusal(config, {name: NONSENSE}))
    return [value for value in NUMBERS if not refusal(config, {name: value})]


def refusal(config: Callable[..., Any], options: Mapping[str, Any]) -> str:
    """The message of the ValueError that refuses the options; empty where they are accepted."""
    try:
        config(**options)
    except ValueError as error:
        return str(error)
    return ""


def allowed_words(message: str) -> list[str]:
    found = re.search(rf"must be one of (.+), not '{NONSENSE}'", message)
    assert found, f"a choice must refuse {NONSENSE!r} and name what it allows; found: {message!r}"
    return found[1].split(", ")


def family_subject(family: str, interface: Interface, chosen: Mapping[str, Any], *, heads: int = 2) -> Subject:
    """Of two blocks where it is plain, of one elsewhere."""
    module, is_plain = catalog.load("families", family), not chosen and interface == interfaces(family)[0] and heads == 2

    def config(n: int) -> Any:
        return family_config(family, interface, seq_len=n, depth=2 if is_plain else 1, heads=heads)(**chosen)

    is_own = not catalog.plugin("families", family).package
    reached = _family_reached(config(17)) if is_own else _reached("", config(17), depth=1)
    reads_data = 0 in reached(1) or interface.pooling(config(17).pool) != "cls"

    def data(n: int) -> Tensor:
        tokens = num_data_tokens(n, interface.pooling(config(n).pool))
        if interface.input == "tokens":
            return torch.randint(interface.vocab_size, (1, tokens))
        if interface == POINTS:
            return _points(tokens)
        return torch.randn(1, tokens, interface.patch_dim)

    return Subject(
        name=family,
        is_family=True,
        is_plain=is_plain,
        halves=getattr(module, "SOURCE_AND_TARGET", False),
        label=_label(family, {"input": interface.input, "output": interface.output, "heads": heads, **chosen}),
        is_stepwise=hasattr(module, "is_stepwise") and module.is_stepwise(config(17)),
        reached=reached,
        reads_data=reads_data,
        knows_reach=is_own,
        config=config,
        build=lambda n: module.build(config(n)),
        reference=lambda n: module.build(reference_config(module, config(n))),
        data=data,
        cost=lambda n: module.cost(config(n)),
        reference_cost=lambda n: module.cost(reference_config(module, config(n))),
    )


def mixer_subject(name: str, chosen: Mapping[str, Any]) -> Subject:
    """Tokens come from a layer before, so need a gradient."""
    module, is_own = catalog.load("mixers", name), not catalog.plugin("mixers", name).package

    def config(n: int) -> Any:
        return mixer_config(name, seq_len=n)(**chosen)

    return Subject(
        name=name,
        is_family=False,
        is_plain=not chosen,
        halves=False,
        label=_label(name, chosen),
        is_stepwise=getattr(module, "STEPWISE", False),
        reached=_reached(name if is_own else "", config(17), depth=1),
        reads_data=True,
        knows_reach=is_own,
        config=config,
        build=lambda n: module.build(config(n)),
        reference=lambda n: module.build(reference_config(module, config(n))),
        data=lambda n: torch.randn(1, n, WIDTH, requires_grad=True),
        cost=lambda n: module.cost(config(n)),
        reference_cost=lambda n: module.cost(reference_config(module, config(n))),
    )


def _family_reached(config: Any) -> Callable[[int], range]:
    """`gmlp` mixes by its gating, `metaformer` by its mixer after a short convolution, and attention reads everything."""
    mixer = getattr(config, "gating", getattr(config, "mixer", "attention"))
    in_blocks = _reached(mixer, getattr(config, "mixing", config), depth=config.shape.depth)
    later = max(getattr(config, "short_convolution", 0) - 1, 0)
    return lambda place: range(in_blocks(place).start, in_blocks(place + later).stop)


def _reached(mixer: str, config: Any, *, depth: int) -> Callable[[int], range]:
    """What a token reaches through `depth` mixers: itself, its block, as far to either side as the kernels go, or itself and all that is later;
    everything where nothing is local or causal.

    `mixer`: empty if a package declares it; its name then says nothing, nor do sizes of its own.
    `config`: the mixer's own where it names a window or a kernel size, or says that it is `causal`.
    """
    if mixer == "identity":
        return lambda place: range(place, place + 1)
    window: int = getattr(config, "window", 0)
    if mixer == "attention" and window:
        far = depth * window
        return lambda place: range(place if config.causal else max(0, place - far), place + far + 1)
    if mixer == "window_attention":
        return lambda place: range(place // config.window * config.window, (place // config.window + 1) * config.window)
    if mixer and hasattr(config, "kernel_size"):
        far = depth * (config.kernel_size // 2)
        return lambda place: range(max(0, place - far), place + far + 1)
    if getattr(config, "causal", False):
        return lambda place: range(place, EVERYWHERE)
    return lambda _: range(EVERYWHERE)


def _points(num_tokens: int) -> Tensor:
    """`(1, num_tokens, 3)`: the first half observed, the others asked for."""
    x, y = torch.randn(2, 1, num_tokens)
    asked = (torch.arange(num_tokens) >= num_tokens // 2).to(x.dtype).expand(1, -1)
    return torch.stack((x, y * (1 - asked), asked), dim=-1)


def _label(name: str, chosen: Mapping[str, Any]) -> str:
    return "+".join([name, *(f"{key}={value}" for key, value in chosen.items())])
