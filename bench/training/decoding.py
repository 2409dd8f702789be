"""Score a model on a split, decoding greedily if it generates.

Source: Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), Sec. 3.1: the model is auto-regressive, so each step reads the symbols
generated so far. Any model that answers at every token can be decoded: it is called once per generated token, on whole sequences.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from bench.tasks import IGNORED, Split
from bench.tasks._info import Generation
from bench.training.objective import Scores, join, judge
from bench.training.reading import Batch, Reader

MAX_SAMPLED = 500
"""Largest number of training or validation items to decode.

Each item costs a forward pass per generated token. Test items are all decoded.
"""


def generate(call: Callable[..., Tensor], batch: Batch, generation: Generation) -> Tensor:
    """Generate answers greedily, `(batch, tokens, classes)`; zero at tokens without a question.

    `call`: `(data, valid)` -> `(batch, tokens, classes)`.

    In every item, the generated part begins at the first token with a question in any item of the batch. That token must be the start symbol. All
    tokens after it are blanked before the first call. Each answer is computed after all earlier answers were generated.

    Raises ValueError if the part does not begin with the start symbol.
    """
    asked = (batch.targets != IGNORED).any(dim=0).nonzero()[:, 0]
    first, end = int(asked[0]), int(asked[-1]) + 1
    if not bool((batch.data[:, first] == generation.start).all()):
        raise ValueError(f"data must be the start symbol {generation.start} at token {first}, the first with a question, in every item")
    tokens = batch.data.clone()
    tokens[:, first + 1 :] = generation.blank
    given = []
    for place in range(first, end):
        given.append(call(tokens, batch.valid)[:, place])
        tokens[:, place + 1 : place + 2] = given[-1].argmax(dim=-1, keepdim=True)  # nothing is written after the last token
    outputs = given[0].new_zeros(*tokens.shape, given[0].shape[-1])
    outputs[:, first:end] = torch.stack(given, dim=1)
    return outputs


def decoded_sample(examples: Split, generation: Generation | None) -> Split:
    """Return all items, or the same `MAX_SAMPLED` drawn at random if answers are generated: items may be stored by class."""
    if generation is None or len(examples) <= MAX_SAMPLED:
        return examples
    chosen = torch.randperm(len(examples), generator=torch.Generator().manual_seed(0))[:MAX_SAMPLED]
    return examples.select(chosen.to(examples.targets.device))


MAX_ITEMS = 256
MAX_TOKENS = 65_536


@torch.no_grad()
def score(
    model: nn.Module,
    examples: Split,
    reader: Reader,
    answers: str,
    forward: Callable[..., Tensor] | None = None,
    generation: Generation | None = None,
) -> Scores:
    """Score every item once; leave the model in evaluation mode.

    The examples must be on the model's device.

    `forward`: function that calls the model; by default the model itself.
    `generation`: how to generate answers token by token; None if the model answers all tokens at once.
    """
    model.eval()
    call = model if forward is None else forward  # `forward or model` would fail: a compiled model has no truth value
    items = torch.arange(len(examples), device=examples.targets.device)
    num_tokens = examples.inputs.shape[1] if examples.inputs.ndim < 4 else 1
    batch_size = max(1, min(MAX_ITEMS, MAX_TOKENS // num_tokens))
    parts = []  # batches are judged one at a time, because the outputs for all items of a long text would not fit in memory
    for chosen in items.split(batch_size):
        batch = reader.read(examples.select(chosen))
        outputs = generate(call, batch, generation) if generation else call(batch.data, batch.valid)
        parts.append(judge(answers, outputs.float(), batch.targets))
    return join(answers, parts, examples.targets)
