from __future__ import annotations

from typing import Any

import pandas
import pytest

from bench.analysis.frame import prepare, unstable, varying
from bench.report.charts.style import display_name
from bench.report.tables import Table, rows_table, skipped_table, summary_table, unstable_table, without_constants
from bench.spec import Part, PlannedArm
from tests.report.conftest import MakeData, as_dicts


def test_cells_read_as_a_person_would_write_them(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, ["latency_ms", "latency_low_ms", "latency_high_ms", "peak_memory_bytes"]] = [4.2, 4.1, 4.3, 12.3 * 2**20]
        rows.loc[0, "memory_source"] = "predicted"
        rows.loc[0, "latency_stable"] = False

    first = as_dicts(rows_table(prepare(make_data(models=["gmlp"], lengths=[17], change=change).rows)))[0]
    assert first["latency"] == "4.2 ms [4.1, 4.3], unstable"
    assert first["peak memory"] == "12.3 MiB, predicted"
    assert first["budget"] == "250 k"


def test_times_and_ratios_of_few_rounds_have_their_range(make_data: MakeData) -> None:
    few = {"latency_ms": 4.2, "latency_low_ms": None, "latency_high_ms": None, "latency_min_ms": 4.1, "latency_max_ms": 4.3}
    ratio = {"ratio": 1.42, "ratio_low": None, "ratio_high": None, "ratio_min": 1.38, "ratio_max": 1.46, "ratio_to": "vit n=17"}
    rows = make_data(models=["gmlp"], lengths=[17]).rows.assign(**few, **ratio)
    (line,) = as_dicts(rows_table(prepare(rows)))
    assert line["latency"].startswith("4.2 ms (4.1 to 4.3)")
    assert any(text.startswith("1.420 (1.380 to 1.460) x vit") for text in line.values())


def test_only_what_varies_or_holds_values_has_a_column(make_data: MakeData) -> None:
    frame = prepare(make_data(works=[{"phase": "infer"}, {"phase": "train"}], metrics=["params", "flops"]).rows)
    headers = rows_table(frame).headers
    assert "phase" in headers
    assert not {"dtype", "latency", "peak memory", "energy"} & set(headers)


def test_the_summary_marks_unstable_times_and_names_the_reference_once(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, "latency_stable"] = False
        rows.loc[1, "status"] = "failed"
        rows.loc[1, ["ratio", "ratio_low", "ratio_high"]] = [1.2, 1.1, 1.3]
        rows.loc[1, "ratio_to"] = "gmlp n=17"

    first, second = as_dicts(summary_table(prepare(make_data(models=["gmlp", "vit"], lengths=[17], change=change).rows)))
    assert first["latency"].startswith("~")
    assert second["latency / gmlp's"] == "1.20 [1.10, 1.30]"
    assert (first["status"], second["status"]) == ("", "failed")
    assert not {"status", "energy"} & set(summary_table(prepare(make_data().rows)).headers)
    assert {row["energy"] for row in as_dicts(summary_table(prepare(make_data().rows.assign(energy_j=0.25))))} == {"0.250 J"}


def test_no_column_at_all_and_nullable_integers_are_fine() -> None:
    frame = prepare(pandas.DataFrame({"model": ["gmlp"], "seq_len": pandas.array([None], dtype="Int64"), "status": ["failed"]}))
    assert summary_table(frame).rows == (("gmlp", "", "failed"),)
    assert rows_table(prepare(pandas.DataFrame())).rows == ()


def test_unstable_and_skipped_cells_say_which_and_why(make_data: MakeData) -> None:
    data = make_data(models=["vit"], lengths=[17], change=lambda rows: rows.__setitem__("latency_stable", False))
    frame = prepare(data.rows)
    (row,) = as_dicts(unstable_table(unstable(frame), varying(frame)))
    assert row["interval"] == "9 % wide"
    assert as_dicts(skipped_table(data.plan.skipped))[0]["nearest params"] == "33,570,816"


def test_a_cell_carries_the_value_that_it_sorts_by(make_data: MakeData) -> None:
    def change(rows: pandas.DataFrame) -> None:
        rows.loc[1, "latency_ms"] = None

    data = make_data(models=["gmlp"], lengths=[17, 65], change=change)
    table = rows_table(prepare(data.rows))
    place = table.headers.index("latency")
    assert [keys[place] for keys in table.keys] == [data.rows.loc[0, "latency_ms"], None]
    assert [header for header, badge in zip(table.headers, table.badges, strict=True) if badge] == ["status"]


def test_a_variant_has_the_name_of_its_arm_and_its_recipe_a_column_of_its_own(make_data: MakeData) -> None:
    rows = make_data(models=["vit"], lengths=[17], works=({"recipe": ""}, {"recipe": "cutmix=1.0"})).rows
    basic, cutmix = rows["cell_id"]
    arms = (PlannedArm(name="basic", cells=(basic,)), PlannedArm(name="CutMix", cells=(cutmix,)))
    parts = [Part(name=name, match="params", batching="", cells=(basic, cutmix), arms=arms, baseline="basic") for name in ("one", "two")]
    found = as_dicts(rows_table(prepare(rows, parts)))
    assert [(row["model"], row["variant"], row["recipe"]) for row in found] == [
        ("vit", "basic", "the run's recipe"),
        ("vit", "CutMix", "cutmix=1.0"),
    ]


@pytest.mark.parametrize(
    ("ran", "names"),
    [
        (("flash", "flash"), {"fused ViT"}),
        ((None, None), {"fused ViT"}),
        (("math", "math"), {"default explicit ViT"}),
        (("flash", "math"), {"partly fused ViT"}),
    ],
)
def test_a_label_says_fused_only_if_the_recorded_kernel_was(ran: tuple[Any, Any], names: set[str], make_data: MakeData) -> None:
    one = make_data(models=["vit"], lengths=[17, 65]).rows
    rows = pandas.concat([one.assign(attention="auto", attention_effective=ran), one.assign(attention="math", attention_effective="math")])
    labels = set(prepare(rows)["label"])
    assert {display_name(label) for label in labels} == {*names, "explicit ViT"}


def test_a_column_that_says_the_same_everywhere_goes_into_a_sentence() -> None:
    made = Table(
        headers=("model", "depth", "n"),
        numeric=(False, True, True),
        rows=(("a", "2", "17"), ("b", "2", "17")),
        keys=((None, 2.0, 17.0),) * 2,
    )
    slim, same = without_constants(made, keep=("n",))
    assert (slim.headers, slim.rows, slim.keys, same) == (("model", "n"), (("a", "17"), ("b", "17")), ((None, 17.0),) * 2, "depth 2")
    alone = Table(headers=("model",), numeric=(False,), rows=(("a",),))
    assert without_constants(alone) == (alone, "")
