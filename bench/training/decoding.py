"""Scores a model on all items of a split; greedy decoding where it must answer token by token.

Source: Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), Sec. 3.1: at each step the model is auto-regressive, consuming the symbols
that it generated before. Any model that answers at every token can be decoded so: it is called once per generated token, on whole sequences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.tasks import IGNORED
from bench.tasks._info import Generation
from bench.training.objective import Scores, join, judge
from bench.training.reading import Batch, Examples, Reader

MAX_SAMPLED = 500
"""Of the items that are scored after every epoch, or that were learned from, so many are decoded: each costs a forward pass per generated token."""


def generate(call: Callable[..., Tensor], batch: Batch, generation: Generation) -> Tensor:
    """`(batch, tokens, classes)`: at each token asked for, the answer given when all before it had been generated; zero elsewhere.

    The generated part begins, in every item of the batch, at the first token that any asks for, which reads as the start symbol; all after it are
    blanked before the first call, whatever the batch holds there. `call`: `(data, valid)` -> `(batch, tokens, classes)`. Raises ValueError where
    the part does not begin with the start symbol.
    """
    asked = (batch.targets != IGNORED).any(dim=0).nonzero()[:, 0]
    first, end = int(asked[0]), int(asked[-1]) + 1
    if not bool((batch.data[:, first] == generation.start).all()):
        raise ValueError(f"data must be the start symbol {generation.start} at token {first}, the first that is asked for, in every item")
    tokens = batch.data.clone()
    tokens[:, first + 1 :] = generation.blank
    given = []
    for place in range(first, end):
        given.append(call(tokens, batch.valid)[:, place])
        tokens[:, place + 1 : place + 2] = given[-1].argmax(dim=-1, keepdim=True)  # nothing is written after the last token
    outputs = given[0].new_zeros(*tokens.shape, given[0].shape[-1])
    outputs[:, first:end] = torch.stack(given, dim=1)
    return outputs


def decoded_sample(examples: Examples, generation: Generation | None) -> Examples:
    """All items, or, where their answers are generated, the first `MAX_SAMPLED`."""
    if generation is None or len(examples) <= MAX_SAMPLED:
        return examples
    return examples.select(torch.arange(MAX_SAMPLED, device=examples.targets.device))


MAX_ITEMS = 256
MAX_TOKENS = 65_536


@torch.no_grad()
def score(
    model: nn.Module,
    examples: Examples,
    reader: Reader,
    answers: str,
    forward: Callable[..., Tensor] | None = None,
    generation: Generation | None = None,
) -> Scores:
    """Every item once, in evaluation mode; the model is left in that mode. The examples lie on the model's device.

    `forward`: how the model is called (itself by default). `generation`: where answers are generated token by token, how (`bench.training.decoding`).
    """
    model.eval()
    call = model if forward is None else forward  # a compiled model has no truth value
    items = torch.arange(len(examples), device=examples.targets.device)
    num_tokens = examples.inputs.shape[1] if examples.inputs.ndim < 4 else 1
    batch_size = max(1, min(MAX_ITEMS, MAX_TOKENS // num_tokens))
    parts = []  # answers are judged batch by batch: those of all items of a long text would not fit
    for chosen in items.split(batch_size):
        batch = reader.read(examples.select(chosen))
        outputs = generate(call, batch, generation) if generation else call(batch.data, batch.valid)
        parts.append(judge(answers, outputs.float(), batch.targets))
    return join(answers, parts, examples.targets)
