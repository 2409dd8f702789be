"""Does static mixing, competitive on images, fall behind on language?

Prediction: Labels of short texts depend more on words than on word order. On TREC, SST-2 and IMDb, at these sizes, a bag of
words (no mixing, no positions) is therefore close to all other models, and gMLP is close to the Transformer. Hidden tokens
depend on their neighbours: there the bag of words fails, and the gatings rank as in the paper, with linear worse than
additive, and additive worse than multiplicative with split. The same word can stand anywhere. W belongs to positions and
must learn a word anew at each one, so attention and the tiny attention of aMLP do better there. Nested expressions (ListOps)
need no download. They are the hardest task, because the relevant tokens must be found by content. One more difference: the
Transformer is post-norm and gMLP pre-norm.

Missing spans (T5) are written by models that read no later token: decoders, and an encoder-decoder. Attention copies what the
text shows to where it is written, at any distance; W knows places alone, so gMLP writes worse, and aMLP lies between. The
encoder-decoder reads the text in both directions, and is ahead of the decoders.

The bag of words is a metaformer with the mixer identity and without positions: tokens are embedded, each passes the blocks
alone, and their mean is classified.

Source: arXiv 2105.08050, Sec. 4 (masked language modelling, Tables 3 and 6; aMLP); arXiv 2011.04006 (text as bytes, ListOps);
arXiv 1910.10683, Sec. 3.1.4 (spans).

Cost: five hours on one CPU thread; seven on a GPU (estimate); both with data (needs --data-root). Three minutes with --quick
on a CPU, less without data.
"""

from bench.questions import Ablation, Arm, Asked, Finding, Grid, predict

NESTED, TREC, SST2, IMDB, MASKED, SPANS = "nested expressions", "TREC", "SST-2", "IMDb", "masked tokens", "missing spans"


def arm(name: str, models: str, **flags: str) -> Arm:
    return Arm(name=name, flags={"models": models, **flags})


TRANSFORMER = arm("Transformer", "transformer+pool=mean+positions=learned")
GMLP = arm("gMLP", "gmlp+pool=mean")
AMLP = arm("aMLP", "gmlp+pool=mean+tiny_attention=32")
BAG = arm("bag of words", "metaformer+mixer=identity+positions=none")
MODELS = (TRANSFORMER, GMLP, AMLP, BAG)
GATINGS = tuple(
    arm(f"gMLP, {name}", f"gmlp+pool=mean+gating={name}{start}")
    for name, start in (("identity", ""), ("linear", "+bias_init=0"), ("additive", "+bias_init=0"), ("multiplicative", ""))
)
WRITING = (
    arm("decoder, Transformer", "metaformer+mixer=attention:causal=true"),
    arm("decoder, gMLP", "gmlp+causal=true"),
    arm("decoder, aMLP", "gmlp+causal=true+tiny_attention=32"),
    arm("encoder-decoder", "encoder_decoder"),
)
HIDDEN = (GMLP, *GATINGS, AMLP, TRANSFORMER, BAG)

SMALL = {"depth": "2", "params": "300k", "metrics": "params,flops,accuracy"}
ON_TREC = {**SMALL, "task": "trec+tokenizer=bpe+vocab_size=1000", "seq": "32", "epochs": "10"}
ON_SST2 = {**SMALL, "task": "sst2+tokenizer=bpe+vocab_size=1000", "seq": "32", "epochs": "1"}
ON_IMDB = {**SMALL, "params": "800k", "task": "imdb+tokenizer=bpe", "seq": "64,128,256", "epochs": "2"}
ON_MASKED = {**SMALL, "task": "masked_token:trec", "seq": "64", "epochs": "12"}
ON_SPANS = {**SMALL, "task": "span_corruption:trec", "seq": "128", "epochs": "12"}
ON_NESTED = {**SMALL, "task": "listops+items=6000+test_items=1000", "seq": "64", "epochs": "6"}
LARGE = {**SMALL, "depth": "6", "params": "10M", "metrics": "params,flops,latency,memory,accuracy"}
PERPLEXITY = "perplexity"


ABLATION = Ablation(
    cpu=(
        Grid(name=NESTED, flags=ON_NESTED, arms=MODELS),
        Grid(name=TREC, flags=ON_TREC, arms=MODELS),
        Grid(name=SST2, flags=ON_SST2, arms=MODELS),
        Grid(name=IMDB, flags=ON_IMDB, arms=MODELS),
        Grid(name=MASKED, flags=ON_MASKED, arms=HIDDEN),
        Grid(name=SPANS, flags=ON_SPANS, arms=WRITING),
    ),
    cuda=(
        Grid(name=NESTED, flags={**LARGE, "task": "listops", "seq": "256", "epochs": "10"}, arms=MODELS),
        Grid(name=TREC, flags=ON_TREC, arms=MODELS),
        Grid(name=SST2, flags={**LARGE, "task": "sst2+tokenizer=bpe", "seq": "64", "epochs": "5"}, arms=MODELS),
        Grid(name=IMDB, flags={**LARGE, "task": "imdb", "seq": "1024,2048,4096", "epochs": "3"}, arms=MODELS),
        Grid(name=MASKED, flags={**LARGE, "task": "masked_token:imdb+tokenizer=bpe", "seq": "128", "epochs": "10"}, arms=HIDDEN),
        Grid(name=SPANS, flags={**LARGE, "task": "span_corruption:imdb+tokenizer=bpe", "seq": "256", "epochs": "10"}, arms=WRITING),
    ),
    quick=(
        Grid(name=NESTED, flags={**ON_NESTED, "task": "listops+items=1500+test_items=300", "epochs": "1"}, arms=MODELS),
        Grid(name=TREC, flags={**ON_TREC, "epochs": "1"}, arms=MODELS),
        Grid(name=MASKED, flags={**ON_MASKED, "epochs": "1"}, arms=HIDDEN[:4]),
        Grid(name=SPANS, flags={**ON_SPANS, "epochs": "1"}, arms=WRITING),
    ),
    predictions=(
        predict(TREC, GMLP, "equal", "the class depends on few words", by=0.03, against=TRANSFORMER),
        predict(TREC, BAG, "equal", "the class depends on few words", by=0.1, against=TRANSFORMER),
        predict(SST2, GMLP, "equal", "sentiment depends on words", by=0.03, against=TRANSFORMER),
        predict(IMDB, GMLP, "equal", "sentiment depends on words", by=0.03, against=TRANSFORMER),
        predict(IMDB, BAG, "equal", "sentiment depends on words", by=0.03, against=TRANSFORMER),
        predict(NESTED, GMLP, "lower", "relevant tokens must be found by content", against=TRANSFORMER),
        predict(MASKED, BAG, "higher", "neighbours reveal hidden tokens", by=0.1, against=GMLP, measure=PERPLEXITY),
        predict(MASKED, "gMLP, linear", "higher", "first-order interaction only", measure=PERPLEXITY),
        predict(MASKED, "gMLP, additive", "higher", "first-order interaction only", measure=PERPLEXITY),
        predict(MASKED, "gMLP, multiplicative", "equal", "second-order interaction as well", by=0.05, measure=PERPLEXITY),
        predict(MASKED, AMLP, "lower", "attention finds words at any position", measure=PERPLEXITY),
        predict(MASKED, TRANSFORMER, "lower", "attention finds words at any position", measure=PERPLEXITY),
        predict(SPANS, "decoder, gMLP", "lower", "W finds no word whose place varies"),
        predict(SPANS, "decoder, aMLP", "higher", "attention finds words at any position", against="decoder, gMLP"),
        predict(SPANS, "encoder-decoder", "higher", "it reads the text in both directions"),
    ),
    findings=(
        Finding(
            text="Against the Transformer, gMLP's accuracy differs by {} on TREC, {} on SST-2 and {} on nested expressions.",
            about=tuple(Asked(part=part, arm=GMLP.name) for part in (TREC, SST2, NESTED)),
        ),
        Finding(
            text="Of hidden tokens, the Transformer's perplexity is {} gMLP's, that of gMLP with a tiny attention {}, of a bag of words {}.",
            about=tuple(Asked(part=MASKED, arm=of.name, measure=PERPLEXITY) for of in (TRANSFORMER, AMLP, BAG)),
        ),
        Finding(
            text="On missing spans, against a causal Transformer, accuracy changes by {} with gMLP, {} with aMLP and {} with encoder and decoder.",
            about=tuple(Asked(part=SPANS, arm=arm) for arm in ("decoder, gMLP", "decoder, aMLP", "encoder-decoder")),
        ),
    ),
    seeds=3,
)
