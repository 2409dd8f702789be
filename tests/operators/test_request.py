"""The flags of `bench kernels`: what they ask for, and what is refused in one line."""

from __future__ import annotations

import pytest

from bench import cli
from bench.measure import environment
from bench.operators import ATTENTION, BACKWARD, FORWARD, GATE, KERNELS
from bench.operators.compare import OPERATORS
from bench.operators.request import request_of


def test_the_names_are_those_of_the_kernels() -> None:
    assert {operator: set(names) for operator, names in KERNELS.items()} == {
        operator: set(found.kernels) for operator, found in OPERATORS.items()
    }


def test_a_case_per_operator_head_width_phase_and_length() -> None:
    cases = list(request_of(device="cpu", seq_lens=(17, 33), head_widths=(8, 16), channels=(32,), tokens=100).cases())
    assert [(c.operator, c.head_width, c.phase, c.n, c.batch) for c in cases] == [
        (operator, width, phase, n, batch)
        for operator, widths in ((GATE, (0,)), (ATTENTION, (8, 16)))
        for width in widths
        for phase in (FORWARD, BACKWARD)
        for n, batch in ((17, 6), (33, 3))
    ]
    assert {c.heads for c in cases} == {None, 4, 2}


def test_a_length_above_the_default_tokens_still_has_one_sample() -> None:
    assert {case.batch for case in request_of(device="cpu", seq_lens=(4097,), operators=(GATE,)).cases()} == {1}


def test_kernels_keep_their_order_and_leave_out_operators_without_them() -> None:
    assert request_of(device="cpu", kernels=("conv1d", "linear")).kernels == {GATE: ("conv1d", "linear")}
    assert request_of(device="cpu", kernels=("flash", "linear", "onednn")).kernels == {
        GATE: ("linear", "onednn"),
        ATTENTION: ("flash", "onednn"),
    }


def test_a_gpu_has_defaults_of_its_own_with_aligned_twins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "resolve_device", lambda _: "cuda")
    request = request_of(cold=True, dtypes=("tf32",))
    assert request.device == "cuda"
    assert request.cold
    assert {n - 1 for n in request.seq_lens if n % 2} == {n for n in request.seq_lens if not n % 2}
    assert request_of().dtypes == ("bf16",)


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (("--operators", "gates"), "Invalid value for '--operators': unknown value 'gates'", "did you mean gate?"),
        (("--kernels", "flas"), "unknown value of --kernels: 'flas'", "did you mean flash?"),
        (("--operators", "gate", "--kernels", "flash"), "unknown value of --kernels: 'flash'", "bench kernels --help"),
        (("--phase", "train"), "'--phase': unknown value 'train'; allowed: forward, forward+backward", "bench kernels --help"),
        (("--dtype", "fp64"), "'--dtype': unknown value 'fp64'", "did you mean"),
        (("--dtype", "tf32"), "--dtype tf32 needs a CUDA device", "try --dtype fp32,bf16"),
        (("--seq", "17,,33"), "'--seq': '17,,33' has an empty entry", "bench kernels --help"),
        (("--channels", "100", "--head-width", "32"), "--channels 100 is not a multiple of --head-width 32", "try --channels 256"),
        (("--seq", "17,33", "--tokens", "20"), "--tokens 20 is less than one sample of n = 33", "try --tokens 33"),
        (("--operators", "gate", "--head-width", "32"), "--head-width needs the operator attention", "leave --head-width out"),
        (("--threads", "0"), "Invalid value for '--threads'", "bench kernels --help"),
        (("--blocks", "1"), "Invalid value for '--blocks'", "bench kernels --help"),
        (("--cold",), "--cold flushes a GPU's L2 cache", "leave --cold out"),
        (("--out", __file__), "already exists and is not empty", "choose another --out"),
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
