"""Texts of the user's own: the same items from every format, a split that is always the same, and a plain refusal of what cannot be read."""

from __future__ import annotations

import codecs
import os
from pathlib import Path

import pandas as pd
import pytest

from bench.spec import RequestError
from bench.tasks import Splits, load_splits, require_data, text
from bench.tasks._info import Sequences, choose
from tests.contracts.made_data import text_of_bytes

ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", ".csv.gz", ".tsv.xz", ".jsonl.gz")
ROWS = pd.DataFrame({"text": [f"no. {row} é" for row in range(12)], "label": ["good", "bad"] * 6})


def write(table: pd.DataFrame, path: Path) -> str:
    """Write a table in the form of its ending; the task that reads it."""
    if ".parquet" in path.name:
        table.to_parquet(path)
    elif ".jsonl" in path.name:
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    return f"text:{path}"


def texts_of(splits: Splits, part: str) -> list[str]:
    return [text_of_bytes(row.numpy()) for row in getattr(splits, part).inputs]


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_format_gives_the_same_items(tmp_path: Path, ending: str) -> None:
    task = write(ROWS, tmp_path / f"reviews{ending}")
    require_data(task)
    splits = load_splits(task, num_tokens=16)
    assert texts_of(splits, "test") == ["no. 8 é", "no. 9 é"]
    assert splits.test.targets.tolist() == [1, 0]
    assert texts_of(splits, "train") == [f"no. {row} é" for row in (0, 1, 2, 3, 4, 5, 6, 7, 10, 11)]
    info = text.info(choose(task))
    assert (info.num_classes, info.num_train, info.num_validation, info.num_test, info.chance) == (2, 10, 0, 2, 0.5)
    assert info.reads == Sequences(vocab_size=257)


def test_a_split_column_decides(tmp_path: Path) -> None:
    parts = ["test", "train", "train", "validation"] * 3
    task = write(ROWS.assign(split=parts), tmp_path / "reviews.csv")
    splits, info = load_splits(task, num_tokens=16), text.info(choose(task))
    assert texts_of(splits, "validation") == ["no. 3 é", "no. 7 é", "no. 11 é"]
    assert texts_of(splits, "test") == ["no. 0 é", "no. 4 é", "no. 8 é"]
    assert (info.num_train, info.num_validation, info.num_test) == (6, 3, 3)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_columns_are_named_and_numbers_are_sorted_as_numbers(tmp_path: Path, ending: str) -> None:
    table = pd.DataFrame({"review": ROWS["text"], "stars": [10, 2, 9] * 4})
    task = write(table, tmp_path / f"reviews{ending}") + "+text_column=review+label_column=stars"
    with pytest.raises(RequestError, match="no rows for test"):
        load_splits(task, num_tokens=8)
    write(pd.concat([table, table]), tmp_path / f"reviews{ending}")
    assert load_splits(task, num_tokens=8).train.targets[:3].tolist() == [2, 0, 1]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_texts_are_read_as_written_and_an_empty_one_is_one_space(tmp_path: Path, ending: str) -> None:
    odd = ["NA", "007", 'said "no", twice', "2024-01-01", "null", "two\nlines", "1e5", "  "]
    table = pd.DataFrame({"text": odd, "label": ["a", "b"] * 4, "split": ["train"] * 7 + ["test"]})
    splits = load_splits(write(table, tmp_path / f"odd{ending}"), num_tokens=32)
    assert texts_of(splits, "train") + texts_of(splits, "test") == odd
    splits = load_splits(write(ROWS.assign(text=["", *ROWS["text"][1:]]), tmp_path / f"empty{ending}"), num_tokens=8)
    assert splits.train.lengths is not None
    assert (splits.train.lengths[0].item(), texts_of(splits, "train")[0]) == (1, " ")
    (tmp_path / "open.tsv").write_text("text\tlabel\tsplit\n" + '"open\ta\ttrain\n' + "x\tb\ttrain\n" + "y\tb\ttest\n")
    assert texts_of(load_splits(f"text:{tmp_path / 'open.tsv'}", num_tokens=8), "train") == [
        '"open',
        "x",
    ]  # one quotation mark swallows no rows


def test_lines_of_json_may_be_empty_or_lack_a_text(tmp_path: Path) -> None:
    path = tmp_path / "reviews.jsonl"
    rows = [
        '{"text": "x", "label": true, "split": "train"}',
        '{"label": false, "split": "train"}',
        "",
        '{"text": "y", "label": true, "split": "test"}',
    ]
    path.write_text("\n".join(rows) + "\n")
    splits = load_splits(f"text:{path}", num_tokens=4)
    assert (texts_of(splits, "train"), splits.train.targets.tolist()) == (["x", " "], [1, 0])


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_data(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"reviews{ending}"
    task = write(ROWS, path)
    plain = load_splits(task, num_tokens=16)
    path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert load_splits(task, num_tokens=16).train.inputs.equal(plain.train.inputs)


def test_a_file_that_was_written_again_is_counted_again(tmp_path: Path) -> None:
    path = tmp_path / "reviews.csv"
    choice = choose(write(ROWS, path))
    assert text.info(choice).num_train == 10
    write(pd.concat([ROWS, ROWS]), path)
    os.utime(path, ns=(1, 1))
    assert text.info(choice).num_train == 20


@pytest.mark.parametrize("name", ["reviews.xlsx", "reviews.parquet.gz"])
def test_an_unknown_ending_is_refused_naming_the_known(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("text,label\n")
    with pytest.raises(RequestError, match=r"has an unknown ending; allowed: \.csv, \.tsv, \.jsonl, \.parquet"):
        require_data(f"text:{tmp_path / name}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("body,label\nx,1\n", "no column 'text'; its columns: body, label"),
        ("text,label\nx,1\ny,1\n", r"holds 1 class\(es\)"),
        ("text,label\nx,1\ny\n", "row 2 of 2 has no value"),
        ("text,label\nx,1\ny,0,3\n", "cannot be read as csv"),
        ("text,label,split\nx,1,test\ny,0,test\n", "no rows for train"),
        ("text,label,split\nx,1,train\ny,0,dev\n", "holds 'dev'; allowed: train, validation, test"),
        ("text,label,split\nx,1,train\ny,0,test\n", "class '0' has no rows for train"),
        ("text,label\nx,pos\ny,pos \nz,neg\n", "labels 'pos' and 'pos ' differ only in spaces"),
        ("", "cannot be read as csv"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "reviews.csv"
    path.write_text(content)
    with pytest.raises(RequestError, match=said):
        require_data(f"text:{path}")


@pytest.mark.parametrize("name", ["reviews.csv.gz", "reviews.jsonl", "reviews.parquet"])
def test_what_is_no_such_file_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xff\xfe\x00broken")
    with pytest.raises(RequestError, match="cannot be read"):
        require_data(f"text:{tmp_path / name}")
    with pytest.raises(RequestError, match="there is no such file"):
        require_data(f"text:{tmp_path / 'absent' / name}")
