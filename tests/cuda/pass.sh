#!/usr/bin/env bash
# A quarter of an hour on a GPU: what the machine can do and whether the program is right on it (proof), then the question `gpu` (evidence).
#
# For a GPU that is lent for minutes, on a machine without a network: the tree is copied there without .git, and what is written below $OUT
# comes back. Run it in the root of the repository:
#
#   bash tests/cuda/pass.sh prepare [CIFAR]    here: wheels, revision and two parts of CIFAR-10 for the copy. CIFAR is a folder of at most 100 MiB
#                                              whose unpack.py makes ROOT/cifar-10-batches-py of its files (the original archive is 163 MiB)
#   bash tests/cuda/pass.sh proof [SECONDS]    there (default 200): facts, tests/cuda, one small run that is timed and trained
#   bash tests/cuda/pass.sh evidence [SECONDS] there (default 540): the first parts of bench ablate gpu, three families on CIFAR-10, then its other parts
#
# docs/gpu.md says how the stages fit 15 minutes. What does not fit goes on where it ended, in the next pass on the same machine.
#
#   OUT       folder that comes back: NAME.log, facts.txt, tests.xml, NAME.tar.xz (unpack below results/), traces.tar.xz, dmon.txt;
#             live.tar.gz, of the last full minute, only if the stage was killed
#   WORK      folder for all else (default /tmp/gmlp)
#   PYTHON    the interpreter that has torch (default python3)
#   JOBS      workers of the tests side by side (default 12); ONLY: a pytest expression that narrows those tests
#   TIMES_S   at most so many seconds for the first parts of the question (default 350), LEARN_S (default 220) for the trainings of 300k parameters,
#             RECIPE, TASK and SEEDS of these
#   REHEARSE  set to 1 on a machine without a GPU: the same steps with small models
set -u
stage=${1:-} argument=${2:-}
python=${PYTHON:-python3} work=${WORK:-/tmp/gmlp}
carried=$PWD/.gpu parts=($PWD/.cifar1 $PWD/.cifar2)
MAX_PART=$((50 * 1024 * 1024))
PARTS=("headline" "odd sizes" "trace" "escape" "a token for each pixel" "51M on CIFAR-10" "published" "4M on CIFAR-10" "explicit attention" "energy" "fp32" "compiled" "gates" "attention kernels")

prepare() {
    local data=$argument part=0 size=0 exclude
    if [[ -n $data && ! -f $data/unpack.py ]]; then
        echo "$data has no unpack.py, which makes ROOT/cifar-10-batches-py of the files beside it: python unpack.py ROOT" >&2
        exit 2
    fi
    rm -rf "$carried" "${parts[@]}"
    mkdir -p "$carried/whl" "${parts[@]}"
    exclude=$(git rev-parse --git-path info/exclude)
    mkdir -p "$(dirname "$exclude")"
    for name in .gpu .cifar1 .cifar2; do
        grep -qxs "/$name/" "$exclude" || echo "/$name/" >> "$exclude"
    done
    echo "$(git rev-parse HEAD)$([[ -z $(git status --porcelain -- bench models ablations) ]] || echo .dirty)" > "$carried/revision"
    # what a machine for training usually lacks; fvcore has no wheel on the index
    "$python" -m pip download -q --no-deps --only-binary=:all: --python-version "${REMOTE_PYTHON:-3.12}" --implementation cp \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 -d "$carried/whl" \
        msgspec iopath yacs termcolor || exit 1
    "$python" -m pip wheel -q --no-deps -w "$carried/whl" fvcore || exit 1
    if [[ -n $data ]]; then
        while read -r file; do
            size=$((size + $(stat -c %s "$file")))
            if ((size > MAX_PART && part == 0)); then part=1 size=$(stat -c %s "$file"); fi
            if ((size > MAX_PART)); then echo "$data is larger than two parts of 50 MiB" >&2; exit 2; fi
            cp "$file" "${parts[part]}/"
        done < <(find "$data" -maxdepth 1 -type f | sort)
    fi
    du -sh "$carried" "${parts[@]}"
    echo "the tree to copy: git sparse-checkout set --no-cone '/*' '!/reports/' '!/results/' (7 MiB in place of 20); afterwards: git sparse-checkout disable"
    echo "proof with .gpu and .cifar1, evidence with .gpu and .cifar2, on one machine"
}

case $stage in
    prepare) prepare; exit ;;
    proof) limit=${argument:-200} ;;
    evidence) limit=${argument:-540} ;;
    *) echo "prepare, proof or evidence, not '$stage'" >&2; exit 2 ;;
esac
: "${OUT:?names the folder that comes back}"
began=$SECONDS device=cuda quick=()
TIMES_S=${TIMES_S:-350} LEARN_S=${LEARN_S:-220} TASK=${TASK:-cifar10} SEEDS=${SEEDS:-5}
RECIPE=${RECIPE:-epochs=20,batch_size=128,learning_rate=2e-3,augment=crop+flip,precision=tf32,engine=graph}
if [[ -n ${REHEARSE:-} ]]; then
    device=cpu quick=(--quick) TASK=digits SEEDS=2 RECIPE=epochs=5,batch_size=128,learning_rate=2e-3,augment=crop+flip
fi
mkdir -p "$work" "$OUT"
exec > >(tee "$OUT/$stage.log") 2>&1
export BENCH_DATA=$work/data PYTHONUNBUFFERED=1 COLUMNS=160 PYTHONPATH=$work/site:$PWD${PYTHONPATH:+:$PYTHONPATH}
[[ -f $carried/revision ]] && GMLP_BENCH_REVISION=$(< "$carried/revision") && export GMLP_BENCH_REVISION

left() { echo $((limit - (SECONDS - began))); }
say() { echo "== $((SECONDS - began)) s: $*"; }
minutes() { awk "BEGIN{print $1 / 60}"; }
# run NAME SECONDS COMMAND...: within what is left, and go on whatever happens
run() {
    local name=$1 most=$2 rc=0; shift 2
    ((most > $(left) - 5)) && most=$(($(left) - 5))
    if ((most < 5)); then say "$name skipped, no time left"; return 0; fi
    say "$name (at most $most s)"
    # an interrupt, so that pytest still says what failed
    timeout -s INT -k 10 "$most" "$@" || rc=$?
    say "$name ended, rc $rc"
}
# ask NAME SECONDS PART...: these parts of the question, into $work/NAME, ending by itself within the time
ask() {
    local name=$1 most=$2 chosen=(); shift 2
    ((most > $(left) - 8)) && most=$(($(left) - 8))
    for part in "$@"; do chosen+=(--part "$part"); done
    run "$name" $((most + 5)) "$python" -m bench ablate gpu --device $device "${quick[@]}" "${chosen[@]}" --out "$work/$name" \
        --minutes "$(minutes "$most")"
    pack "$name"
}
# pack NAME OTHER...: NAME and what belongs to it
pack() { tar -C "$work" --exclude=checkpoints --exclude=report --exclude=traces -cJf "$OUT/$1.tar.xz" "$@" 2> /dev/null; }

dmon='' live=''
finish() {
    [[ -n $dmon ]] && kill "$dmon" 2> /dev/null
    [[ -n $live ]] && kill "$live" 2> /dev/null
    say "end; $(ls -s --block-size=K "$OUT" | tr '\n' ' ')"
    sleep 0.5 # tee writes what is left
}
trap finish EXIT
"$python" -m pip install -q --no-index --no-deps --no-cache-dir --upgrade --target "$work/site" "$carried"/whl/*.whl || exit 3
"$python" -m compileall -q -j 0 bench models ablations tests > /dev/null
for part in "${parts[@]}"; do
    [[ -n $(ls -A "$part" 2> /dev/null) ]] && mkdir -p "$work/parts" && cp "$part"/* "$work/parts/"
done
# evidence of clocks and power; and a client that stays keeps the driver from shutting the GPU down between two commands
[[ $device == cuda ]] && { nvidia-smi dmon -s pucm -d 1 -o T > "$OUT/dmon.txt" 2>&1 & dmon=$!; }

proof() {
    {
        date -u; uname -r; nproc; free -g | head -2; df -h / /tmp | tail -2
        [[ $device == cuda ]] && nvidia-smi -q | grep -v "N/A" | head -150
        "$python" -m pip list 2> /dev/null
    } > "$OUT/facts.txt" 2>&1
    run imports 60 "$python" -c "
import time; t = time.perf_counter()
import torch, torchvision, timm, numpy, pandas, pyarrow, typer, rich, matplotlib, sklearn, jinja2, msgspec, fvcore, pynvml
print('imports', round(time.perf_counter() - t, 1), 's', *(m.__name__ + ' ' + m.__version__ for m in (torch, torchvision, timm, numpy, pandas)))
import bench, os; print('bench', bench.__file__, os.environ.get('GMLP_BENCH_REVISION'))
if torch.cuda.is_available():
    t = time.perf_counter(); x = torch.randn(4096, 4096, device='cuda', dtype=torch.bfloat16); (x @ x).sum().item()
    print('first product', round(time.perf_counter() - t, 2), 's', torch.cuda.get_device_name(), torch.backends.cudnn.version(), torch.cuda.mem_get_info())
"
    local files=(tests/cuda)
    [[ $device == cpu ]] && files=(tests/cuda tests/measure/test_kernel_time.py)
    # side by side where no time or free memory is judged, then the rest alone; a warning of another version of a library is no failure
    local alone="latency_job or recorded_step or energy_is or not_fit or left_for"
    run "tests, side by side" 80 "$python" -m pytest "${files[@]}" -q -n "${JOBS:-12}" -p no:cacheprovider -W default -k "not ($alone)${ONLY:+ and ($ONLY)}" \
        --junitxml "$OUT/tests.xml" --timeout 60 --durations 8 --tb=short
    run "tests, alone" 40 "$python" -m pytest "${files[@]}" -q -p no:cacheprovider -W default -k "$alone" --junitxml "$OUT/tests_alone.xml" --timeout 40 --tb=short
    run smoke 40 "$python" -m bench run --models gmlp,vit --seq 65 --params 300k --depth 4 --batch 64 --metrics params,flops,latency,memory,accuracy \
        --rounds 1 --task digits --seeds 1 --recipe "$RECIPE" --device $device --out "$work/smoke"
    pack smoke
    say "PROOF DONE"
}

# How well the families learn CIFAR-10 at equal size: a process each, side by side, and their records become one run. No time of theirs is a result.
learn() {
    local most=$1 out=$work/cifar10 family pids=() flags all
    ((most > $(left) - 15)) && most=$(($(left) - 15))
    flags=(--seq 65 --params 300k --depth 4 --task "$TASK" --data-root "$BENCH_DATA" --metrics params,flops,accuracy --seeds "$SEEDS"
        --lr-trials 5 --decay-trials 3 --recipe "$RECIPE" --device $device --limit-s 600)
    say "$TASK (at most $most s)"
    local ends=$((SECONDS + most))
    for family in gmlp vit transformer; do
        timeout -s INT -k 10 $((most + 10)) "$python" -m bench run --models $family "${flags[@]}" --minutes "$(minutes "$most")" --out "${out}_$family" \
            > "${out}_$family.log" 2>&1 &
        pids+=($!)
    done
    # the plan of all three; what it begins to measure is dropped
    "$python" -m bench run --models gmlp,vit,transformer "${flags[@]}" --minutes "$(minutes "$most")" --out "$out" > "$out.log" 2>&1 & all=$!
    until [[ -f $out/records.jsonl ]] || ! kill -0 $all 2> /dev/null; do sleep 0.2; done
    kill -TERM $all
    wait $all
    wait "${pids[@]}"
    for family in gmlp vit transformer; do tail -n 3 "${out}_$family.log"; done
    cat "$out"_{gmlp,vit,transformer}/records.jsonl > "$out/records.jsonl"
    # the search goes on in every family while one best value lies at an end of its range
    ((ends - SECONDS > 30)) && run "$TASK, together" $((ends - SECONDS + 5)) "$python" -m bench run --models gmlp,vit,transformer "${flags[@]}" \
        --minutes "$(minutes $((ends - SECONDS)))" --out "$out"
    pack cifar10 cifar10_{gmlp,vit,transformer}{,.log}
}

evidence() {
    mkdir -p "$BENCH_DATA"
    local wanted=("${PARTS[@]:4}")
    [[ $device == cpu ]] && wanted=("51M on CIFAR-10" "published" "4M on CIFAR-10" "explicit attention" "energy" "gates" "attention kernels")
    [[ -f $work/parts/unpack.py ]] && run "unpack CIFAR-10" 40 "$python" "$work/parts/unpack.py" "$BENCH_DATA"
    # without the log's pipe: its `sleep` outlives it, and whoever waits for the end of the output would wait for that
    (while sleep 60; do
        tar -C "$work" --exclude=checkpoints --exclude=report --exclude=traces --exclude=site --exclude=parts --exclude=data -czf "$OUT/live.tmp" . \
            && mv "$OUT/live.tmp" "$OUT/live.tar.gz"
    done) > /dev/null 2>&1 & live=$!
    ask gpu "$TIMES_S" "${PARTS[@]:0:4}"
    if [[ $device == cpu || -d $BENCH_DATA/cifar-10-batches-py ]]; then
        learn "$LEARN_S"
    else
        say "no CIFAR-10: trainings are left out"
        wanted=("published" "${PARTS[@]:8}")
    fi
    ask more "$(left)" "${wanted[@]}"
    [[ -d $work/gpu/traces ]] && tar -C "$work/gpu" -cJf "$OUT/traces.tar.xz" traces
    kill "$live" 2> /dev/null
    rm -f "$OUT/live.tar.gz" "$OUT/live.tmp"
    say "EVIDENCE DONE"
}

$stage
