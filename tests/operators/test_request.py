"""The flags of `bench kernels`: what they ask for, and what is refused in one line."""

from __future__ import annotations

import pytest

from bench import cli
from bench.measure import environment
from bench.operators import ATTENTION, BACKWARD, FORWARD, GATE, KERNELS
from bench.operators.compare import OPERATORS
from bench.operators.request import parse


def test_the_names_are_those_of_the_kernels() -> None:
    assert {operator: set(names) for operator, names in KERNELS.items()} == {
        operator: set(found.kernels) for operator, found in OPERATORS.items()
    }


def test_a_case_per_operator_head_width_phase_and_length() -> None:
    cases = list(parse(device="cpu", seq="17,33", head_width="8,16", channels="32", tokens="100").cases())
    assert [(c.operator, c.head_width, c.phase, c.n, c.batch) for c in cases] == [
        (operator, width, phase, n, batch)
        for operator, widths in ((GATE, (0,)), (ATTENTION, (8, 16)))
        for width in widths
        for phase in (FORWARD, BACKWARD)
        for n, batch in ((17, 6), (33, 3))
    ]
    assert {c.heads for c in cases} == {None, 4, 2}


def test_a_length_above_the_tokens_still_has_one_sample() -> None:
    assert {case.batch for case in parse(device="cpu", seq="300", tokens="100", operators="gate").cases()} == {1}


def test_kernels_keep_their_order_and_leave_out_operators_without_them() -> None:
    assert parse(device="cpu", kernels="conv1d,linear").kernels == {GATE: ("conv1d", "linear")}
    assert parse(device="cpu", kernels="flash,linear,onednn").kernels == {GATE: ("linear", "onednn"), ATTENTION: ("flash", "onednn")}


def test_a_gpu_has_defaults_of_its_own_with_aligned_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "resolve_device", lambda _: "cuda")
    request = parse(cold=True, dtype="tf32")
    assert request.device == "cuda"
    assert request.cold
    assert {n - 1 for n in request.seq_lens if n % 2} == {n for n in request.seq_lens if not n % 2}
    assert parse().dtypes == ("bf16",)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--operators", "gates"), "unknown value of --operators: 'gates'", "did you mean gate? see: bench kernels --help"),
        (("--kernels", "flas"), "unknown value of --kernels: 'flas'", "did you mean flash?"),
        (("--operators", "gate", "--kernels", "flash"), "unknown value of --kernels: 'flash'", "bench kernels --help"),
        (("--phase", "train"), "unknown value of --phase: 'train'; allowed: forward, forward+backward", "bench kernels --help"),
        (("--dtype", "fp64"), "unknown value of --dtype: 'fp64'", "did you mean"),
        (("--dtype", "tf32"), "--dtype tf32 is a precision of CUDA devices", "try --dtype fp32,bf16"),
        (("--seq", "17,,33"), "--seq '17,,33' has an empty entry", "try --seq"),
        (("--channels", "100", "--head-width", "32"), "--channels 100 is not a multiple of --head-width 32", "try --channels 256"),
        (("--threads", "0"), "--threads '0' is not a whole number", "try --threads 1"),
        (("--blocks", "1"), "--blocks '1' is not a whole number between 2", "try --blocks 2"),
        (("--cold",), "--cold flushes the L2 cache of a GPU", "leave --cold out"),
        (("--out", __file__), "is there already and not empty", "choose another --out"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(
    arguments: tuple[str, ...], message: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["kernels", "--device", "cpu", *arguments])
    assert ended.value.code == 2
    shown = capsys.readouterr().err.splitlines()
    assert len(shown) == 2
    assert shown[0].startswith("error: ")
    assert message in shown[0]
    assert hint in shown[1]
