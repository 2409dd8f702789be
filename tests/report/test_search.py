"""The trials of a search: a row per model, and where its best rate lay."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from bench.analysis.study import Study
from bench.planning.jobs import missing_jobs
from bench.report.document import TableBlock
from bench.report.page import build_document
from bench.report.sections.training import search_blocks, searched
from bench.report.tables import Table
from bench.spec import Outcome, Record
from tests.fake_executor import recorded
from tests.report.conftest import MakeData


def tuned_study(make_data: MakeData, score: Callable[[str, float], float | None], *, trials: int = 99) -> Study:
    """A search over three rates in which trials end so, by family and rate, after at most so many each; None: it diverged."""
    data = make_data(lengths=(17,), works=({"task": "digits"},))
    settings = dataclasses.replace(data.plan.settings, lr_trials=3)
    plan = dataclasses.replace(data.plan, settings=settings, metrics=("params", "tuning", "accuracy"))
    records: list[Record] = []
    while queue := [job for job in missing_jobs(plan, records) if job.metric == "tuning" and job.repeat < trials]:
        for job in queue:
            assert job.recipe is not None
            found = score(job.cell.model.family, job.recipe.learning_rate)
            values = {"validation": found, "learning_rate": job.recipe.learning_rate, "weight_decay": job.recipe.weight_decay}
            outcome = Outcome(status="diverged") if found is None else Outcome(status="measured", values=values)
            records.append(recorded(job, outcome))
    return dataclasses.replace(data, plan=plan, records=tuple(records))


def table_of(study: Study) -> Table:
    (block,) = search_blocks(study)
    assert isinstance(block, TableBlock)
    return block.table


def test_each_model_has_its_trials_and_the_place_of_its_best_rate(make_data: MakeData) -> None:
    best = {"gmlp": 0.1, "vit": 2e-3, "transformer": 2e-3}
    study = tuned_study(make_data, lambda family, rate: None if rate > 0.01 else 0.9 - abs(rate - best[family]))
    rows = {row[0]: row for row in table_of(study).rows}
    assert rows["gMLP"][2:6] == ("5 (1 failed)", "0.001 to 0.016", "0.008", "0.05")
    assert rows["gMLP"][-1] == "inside"
    assert rows["ViT"][2:5] == ("5", "0.001 to 0.004", "0.002")


def test_a_winner_still_at_an_end_is_said_to_be_there(make_data: MakeData) -> None:
    assert {row[-1] for row in table_of(tuned_study(make_data, lambda _, rate: rate)).rows} == {"at the high end"}


def test_a_search_under_way_names_no_winner(make_data: MakeData) -> None:
    study = tuned_study(make_data, lambda _, rate: 1 - rate, trials=2)
    assert {row[-1] for row in table_of(study).rows} == {"not known yet"}
    assert [each.best for each in searched(study)] == [None] * 3


def test_models_that_were_searched_apart_keep_their_own_trials_and_winners(make_data: MakeData) -> None:
    """Read as one run, the others lack the trials that ViT made beyond the end of its first three rates."""
    study = tuned_study(make_data, lambda family, rate: 1 - abs(rate - (4e-3 if family == "vit" else 2e-3)))
    vit = {planned.cell.cell_id for planned in study.plan.cells if planned.cell.model.family == "vit"}
    own = [record for record in study.records if set(record.cells) & vit]
    few = [record for record in study.records if not set(record.cells) & vit and record.repeat < 3]
    trained = dataclasses.replace(study, records=(*own, *few))
    trained.__dict__["trainings"] = {planned.cell.cell_id: [study.records[0]] for planned in study.plan.cells}
    (block,) = search_blocks(trained)
    assert isinstance(block, TableBlock)
    assert {row[0]: (row[2], row[4], row[-1]) for row in block.table.rows} == {
        "gMLP": ("3", "0.002", "inside"),
        "ViT": (str(len(own)), "0.004", "inside"),
        "Transformer": ("3", "0.002", "inside"),
    }
    assert "unlike numbers of trials" in block.caption


def test_a_search_in_which_all_diverged_is_listed(make_data: MakeData) -> None:
    assert {row[2] for row in table_of(tuned_study(make_data, lambda *_: None)).rows} == {"6 (6 failed)"}


@pytest.mark.usefixtures("without_figures")
def test_the_page_has_the_search_where_there_was_one(make_data: MakeData) -> None:
    titles = {section.title for section in build_document(tuned_study(make_data, lambda _, rate: rate)).sections}
    assert "Learning-rate search" in titles
