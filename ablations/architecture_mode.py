"""Which form of Transformer suits sequence-to-sequence tasks: encoder, decoder or both?

Prediction: In the tasks reverse and copy a model writes n / 2 symbols, each n / 2 tokens away from its source. An encoder
writes them in one pass and is exact. A causal decoder and an encoder-decoder with cross-attention write one symbol after
another, greedily. They are exact too, but need n / 2 forward passes per sequence; the measured latencies are for one pass.
The encoder-decoder spends about half of the FLOPs, because each token passes half of the blocks. The recurrent
encoder-decoder with Bahdanau attention is linear in n except for its n^2 / 4 scores. It also learns to reverse at these
lengths, but each step takes longer.

A decoder may also be a causal gMLP, whose W mixes no token into earlier ones. In these two tasks every answer lies at a place of
its own, so it is exact too, in the same number of passes, and one pass takes less time than the decoder's: it has no softmax.

On inputs longer than the training inputs no model is exact: attention cannot use sinusoidal positions absent from training.
The recurrent model counts with its state and loses less; W is untrained at these places, and loses more. Part "shorter to
longer" trains on sources of 1 to 12 symbols and tests on 16.

The curve y = 2 sin x + x^0.8 is a regression task. Nadaraya-Watson regression averages the observations near x; its learned
form can choose how near. A Transformer encoder, with 57,000 parameters against none or one, learns the curve itself, which
is the same in every item, and beats both. Scores are R2; differences are in mean squared error.

Source: arXiv 1706.03762, Sec. 3 (encoder-decoder); arXiv 1409.0473 (additive attention); Dive into Deep Learning, Sec. 11.2
(curve), 11.4 and 11.7.

Cost: an hour on one CPU thread; about ten minutes on a GPU (estimate); two minutes with --quick on a CPU.
"""

import functools

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

DECODER = "metaformer+mixer=attention:causal=true+positions=sinusoidal+residual=post+activation=relu"
GMLP_DECODER = "decoder, gMLP"
REVERSE, COPY, LONGER, COST, CURVE = "reverse", "copy", "shorter to longer", "cost against n", "curve"
SIZED = {"depth": "2", "params": "400k"}
TRAINING = {**SIZED, "metrics": "params,flops,accuracy", "epochs": "4"}


def arm(name: str, models: str, task: str = "") -> Arm:
    return Arm(name=name, flags={"models": models, **({"task": task} if task else {})})


def modes(task: str, options: str, *, encoder: bool = True) -> tuple[Arm, ...]:
    """Return one variant per architecture.

    The encoder reads blanks; the others read their own output so far.
    """
    at_once = (arm("encoder", "transformer", f"{task}{options}"),) if encoder else ()
    written = f"{task}+form=shifted{options}"
    return (
        arm("encoder-decoder", "encoder_decoder", written),
        *at_once,
        arm("decoder", DECODER, written),
        arm(GMLP_DECODER, "gmlp+causal=true", written),
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
    arm(GMLP_DECODER, "gmlp+pool=mean+causal=true"),
    arm("recurrent, Bahdanau", "recurrent_attention"),
)
EXACT = "exact_accuracy"


predict_exact = functools.partial(predict, measure=EXACT, by=0.02)


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
        predict_exact(REVERSE, "encoder", "equal", "both reach every token"),
        predict_exact(REVERSE, "decoder", "equal", "the source lies in its past"),
        predict_exact(REVERSE, "recurrent, Bahdanau", "equal", "it looks up one symbol at a time"),
        predict_exact(COPY, "decoder", "equal", "the source lies in its past"),
        predict_exact(COPY, "recurrent, Bahdanau", "equal", "it looks up one symbol at a time"),
        *(predict_exact(part, GMLP_DECODER, "equal", "every answer lies at a place of its own") for part in (REVERSE, COPY)),
        predict(LONGER, GMLP_DECODER, "lower", "W is untrained at these places", against="decoder"),
        predict(LONGER, "recurrent, Bahdanau", "higher", "it counts by its state, not by untrained positions"),
        predict(COST, "encoder", "higher", "each token passes all blocks", by=0.5, measure="flops", seq_len=512),
        predict(COST, "recurrent, Bahdanau", "higher", "its steps run one after another", by=0.5, measure="latency_ms"),
        predict(COST, GMLP_DECODER, "lower", "it has no softmax", against="decoder", measure="latency_ms", seq_len=512),
        predict(CURVE, "Nadaraya-Watson, learned", "higher", "the bandwidth fits the curve", measure="score"),
        predict(CURVE, "Transformer encoder", "higher", "it learns the curve itself", measure="score"),
    ),
    findings=(
        Finding(
            text="In reversing, against an encoder-decoder, exact sequences change by {} with an encoder and {} with a decoder.",
            about=tuple(Asked(part=REVERSE, arm=arm, measure=EXACT) for arm in ("encoder", "decoder")),
        ),
        Finding(
            text="At n = 512 one pass of the encoder takes {} the encoder-decoder's time, of the decoder {}, of the recurrent model {}.",
            about=tuple(
                Asked(part=COST, arm=arm, measure="latency_ms", seq_len=512) for arm in ("encoder", "decoder", "recurrent, Bahdanau")
            ),
        ),
    ),
    rounds=20,
    seeds=5,
    sample_s=0.3,
)
