"""Encoder, decoder or both: which form of a Transformer answers a sequence with a sequence, and does recurrence still compete?

Prediction: reverse and copy ask for n / 2 symbols from n / 2 tokens away. An encoder answers all at once and is exact; a decoder alone (causal)
and an encoder-decoder with cross-attention write one symbol after the other, greedily, and are exact as well, at n / 2 forward passes for an
answer. The encoder-decoder spends about half of the FLOPs, since each token passes half of the blocks. Latencies are of one pass: who writes
greedily makes n / 2 of them for an answer. The recurrent encoder-decoder with Bahdanau attention, linear in n but for its n^2 / 4 scores, learns
reversing at these lengths too, and takes longer for each step. On inputs longer than those learned from, none of them is exact: sinusoidal
positions beyond those learned from mean nothing to attention; the recurrent one, which counts by its state, is hurt less.

The curve y = 2 sin x + x^0.8 is the other kind of regression: Nadaraya-Watson regression averages what was observed near x; its learned form may
choose how near; a Transformer encoder, with 57,000 parameters where the others have none or one, has learned the curve, which is the same in
every item, and beats both. A score is R2; differences are of the mean squared error.

Part "shorter to longer" learns from sources of 1 to 12 symbols and is tested on 16.

Source: arXiv 1706.03762, Sec. 3 (encoder-decoder); arXiv 1409.0473 (additive attention); Dive into Deep Learning, Sec. 11.2 (curve), 11.4 and
11.7.

Cost: an hour on one thread of a CPU; a GPU about ten minutes, not run yet; --quick two minutes on a CPU.
"""

from bench.spec import Ablation, Arm, Grid, Prediction

DECODER = "metaformer+mixer=attention:causal=true+positions=sinusoidal+residual=post+activation=relu"
REVERSE, COPY, LONGER, COST, CURVE = "reverse", "copy", "shorter to longer", "cost against n", "curve"
SIZED = {"depth": "2", "params": "400k"}
TRAINING = {**SIZED, "metrics": "params,flops,accuracy", "epochs": "4", "batch": "32"}


def arm(name: str, models: str, task: str = "") -> Arm:
    return Arm(name=name, flags={"models": models, **({"task": task} if task else {})})


def modes(task: str, options: str, *, encoder: bool = True) -> tuple[Arm, ...]:
    """The encoder reads blanks where the others read what they have written so far."""
    at_once = (arm("encoder", "transformer", f"{task}{options}"),) if encoder else ()
    written = f"{task}+form=shifted{options}"
    return (
        arm("encoder-decoder", "encoder_decoder", written),
        *at_once,
        arm("decoder", DECODER, written),
        arm("recurrent, Bahdanau", "recurrent_attention", written),
    )


ITEMS = "+items=10000+test_items=500"
FEW = "+items=1500+test_items=100"
CURVES = (
    arm("Nadaraya-Watson, fixed", "kernel_regression"),
    arm("Nadaraya-Watson, learned", "kernel_regression+bandwidth=learned"),
    arm("Transformer encoder", "transformer+positions=none"),
)
ON_CURVE = {
    "width": "48",
    "depth": "2",
    "heads": "2",
    "seq": "64",
    "task": "curve_fitting+items=2000+test_items=200",
    "metrics": "params,flops,accuracy",
}
TIMED = {**SIZED, "match": "shape", "input": "tokens", "batch": "8", "metrics": "params,flops,latency,memory"}
FORMS = (
    arm("encoder-decoder", "encoder_decoder"),
    arm("encoder", "transformer+pool=mean"),
    arm("decoder", DECODER),
    arm("recurrent, Bahdanau", "recurrent_attention"),
)
EXACT = "exact_accuracy"


def exact(part: str, of: str, expected: str, because: str, *, by: float = 0.02) -> Prediction:
    return Prediction(part=part, arm=of, measure=EXACT, expected=expected, by=by, because=because)


ABLATION = Ablation(
    cpu=(
        Grid(name=REVERSE, flags={**TRAINING, "seq": "32"}, arms=modes("reverse", ITEMS)),
        Grid(name=COPY, flags={**TRAINING, "seq": "32", "epochs": "3"}, arms=modes("copy", ITEMS)),
        Grid(name=LONGER, flags={**TRAINING, "seq": "32"}, arms=modes("reverse", f"{ITEMS}+learn_up_to=12", encoder=False)),
        Grid(name=COST, flags={**TIMED, "seq": "32,64,128,256,512"}, arms=FORMS),
        Grid(name=CURVE, flags=ON_CURVE, arms=CURVES),
    ),
    cuda=(
        Grid(name=REVERSE, flags={**TRAINING, "seq": "32,64,128"}, arms=modes("reverse", "")),
        Grid(name=COPY, flags={**TRAINING, "seq": "32,64,128"}, arms=modes("copy", "")),
        Grid(name=LONGER, flags={**TRAINING, "seq": "32"}, arms=modes("reverse", "+learn_up_to=12", encoder=False)),
        Grid(name=COST, flags={**TIMED, "params": "10M", "seq": "64,128,256,512,1024,2048"}, arms=FORMS),
        Grid(name=CURVE, flags=ON_CURVE, arms=CURVES),
    ),
    quick=(
        Grid(name=REVERSE, flags={**TRAINING, "seq": "16", "epochs": "2"}, arms=modes("reverse", FEW)),
        Grid(name=COST, flags={**TIMED, "seq": "32,64,128"}, arms=FORMS),
        Grid(name=CURVE, flags={**ON_CURVE, "task": "curve_fitting+items=500+test_items=50", "epochs": "2"}, arms=CURVES),
    ),
    predictions=(
        exact(REVERSE, "encoder", "equal", "both reach every token"),
        exact(REVERSE, "decoder", "equal", "the source lies in its past"),
        exact(REVERSE, "recurrent, Bahdanau", "equal", "it looks up one symbol at a time"),
        exact(COPY, "decoder", "equal", "the source lies in its past"),
        exact(COPY, "recurrent, Bahdanau", "equal", "it looks up one symbol at a time"),
        Prediction(
            part=LONGER, arm="recurrent, Bahdanau", expected="higher", because="it counts by its state, not by positions never seen"
        ),
        Prediction(
            part=COST,
            arm="encoder",
            measure="flops",
            expected="higher",
            by=0.5,
            seq_len=512,
            because="each token passes all blocks",
        ),
        Prediction(
            part=COST, arm="recurrent, Bahdanau", measure="latency_ms", expected="higher", by=0.5, because="one step after the other"
        ),
        Prediction(part=CURVE, arm="Nadaraya-Watson, learned", measure="score", expected="higher", because="the bandwidth fits the curve"),
        Prediction(part=CURVE, arm="Transformer encoder", measure="score", expected="higher", because="it has learned the curve itself"),
    ),
    rounds=10,
    seeds=3,
    sample_s=0.3,
)
