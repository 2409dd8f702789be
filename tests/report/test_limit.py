"""The distance to the limit: shares with their intervals, the furthest first, and nothing without ceilings."""

from __future__ import annotations

import pandas

from bench.analysis.study import Study
from bench.report.document import Paragraph, TableBlock
from bench.report.sections.roofline import limit_blocks
from tests.report.conftest import MakeData

SHARES = {17: 0.1, 65: 0.25, 257: 0.5}


def add_shares(rows: pandas.DataFrame) -> None:
    """The same share in all models; two operators and no bytes, so that nothing but products is known to take time."""
    rows["ceiling_flops_per_s"], rows["ceiling_bytes_per_s"], rows["ceiling_launch_s"] = 2e11, 2e10, 1e-9
    rows["num_operators"], rows["moved_bytes"], rows["compulsory_bytes"] = 2, 1.0, 2.0**20
    rows["roofline_share"] = [SHARES[n] for n in rows["seq_len"]]
    rows["roofline_ms"] = rows["roofline_share"] * rows["latency_ms"]
    rows["roofline_share_low"], rows["roofline_share_high"] = 0.9 * rows["roofline_share"], 1.1 * rows["roofline_share"]


def shares(data: Study) -> list[str]:
    _, furthest = limit_blocks(data)
    assert isinstance(furthest, TableBlock)
    column = furthest.table.headers.index("of the roofline")
    return [row[column] for row in furthest.table.rows]


def test_unstable_cells_are_marked_and_not_in_the_summary(make_data: MakeData) -> None:
    def shaken(rows: pandas.DataFrame) -> None:
        add_shares(rows)
        rows["latency_stable"] = rows["latency_stable"].astype(object)
        rows.loc[rows["seq_len"] == 17, "latency_stable"] = False

    data = make_data(change=shaken)
    assert all(share.endswith(", unstable") for share in shares(data))
    summary = limit_blocks(data)[0]
    assert isinstance(summary, Paragraph)
    assert "Half of the 6 stable configurations" in summary.text
    assert "Unstable and left out: 3." in summary.text


def test_the_report_names_the_furthest_of_each_model(make_data: MakeData) -> None:
    summary, furthest = limit_blocks(make_data(change=add_shares))
    assert isinstance(summary, Paragraph)
    assert "Half of the 9 stable configurations reach 25.0 % or more" in summary.text
    assert "cpu in fp32 200 GFLOP/s, copies 20 GB/s" in summary.text
    assert isinstance(furthest, TableBlock)
    assert [row[:2] for row in furthest.table.rows] == [("gmlp", "17"), ("vit", "17"), ("transformer", "17")]


def test_a_run_without_ceilings_says_nothing(make_data: MakeData) -> None:
    assert limit_blocks(make_data()) == ()
