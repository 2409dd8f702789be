"""A report as its reader finds it, driven in a real browser."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest

from bench.analysis.trust import Finding
from bench.report.charts.chart import Chart, ChartAxis, ChartPanel
from bench.report.document import Document, FigureBlock, Section, TableBlock
from bench.report.html import PAGE_ROWS, to_html
from bench.report.tables import Table
from bench.report.write import write_report
from tests.browser.conftest import console, requests_outside, show
from tests.report.conftest import build

pytest.importorskip("selenium")
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.slow
ATTACK = "<script>alert(1)</script>"
BREAKOUT = "</script><img src=x onerror=alert(2)>&lt;b&gt;\"'"
NUM_MANY = 10_000


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sizes, so that figures have panels; one cell failed, one unstable; names and reasons that attack."""

    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, "latency_stable"] = False
        rows.loc[5, ["status", "reason", "latency_ms"]] = ["out_of_memory", BREAKOUT, None]

    folder = tmp_path_factory.mktemp("report")
    finding = Finding(text=BREAKOUT, advice=BREAKOUT, serious=True)
    data = build(
        models=("gmlp", "vit", ATTACK), budgets=(250_000, 1_000_000), works=({"task": "digits"},), change=change, findings=[finding]
    )
    write_report(data, folder)
    return folder / "report.html"


def figure(browser: Chrome, name: str) -> WebElement:
    """Scrolled into view and drawn."""
    found = browser.find_element(By.ID, name)
    browser.execute_script("arguments[0].scrollIntoView()", found)
    WebDriverWait(browser, 30).until(lambda _: found.find_elements(By.CSS_SELECTOR, ".legendtoggle[role]"))
    return found


def plot(browser: Chrome, name: str, expression: str) -> Any:
    """`expression` over `plot`, the chart's element, which holds plotly's own data."""
    return browser.execute_script(f"const plot = document.querySelector('#{name} .chart'); return {expression}")


def first_column(block: WebElement, column: int = 0) -> list[str]:
    script = "return [...arguments[0].querySelectorAll('tbody tr')].map((row) => row.cells[arguments[1]].textContent)"
    return list(block.parent.execute_script(script, block, column))


def table_block(browser: Chrome, heading: str) -> WebElement:
    return browser.find_element(By.XPATH, f"//section[h2='{heading}']//div[@class='table-block']")


def header(block: WebElement, text: str) -> WebElement:
    return next(th for th in block.find_elements(By.CSS_SELECTOR, "thead th") if th.text.startswith(text))


def place_of(block: WebElement, text: str) -> int:
    return [th.text for th in block.find_elements(By.CSS_SELECTOR, "thead th")].index(header(block, text).text)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_error_no_request_no_alert_and_no_sideways_scroll(browser: Chrome, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width=width, scheme=scheme)
    for name in [found.get_attribute("id") or "" for found in browser.find_elements(By.CSS_SELECTOR, "figure.has-chart")]:
        figure(browser, name)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.execute_script("return document.images.length") == len(browser.find_elements(By.CSS_SELECTOR, "figure img"))
    assert console(browser) == []
    assert requests_outside(browser) == []
    assert ATTACK in browser.find_element(By.TAG_NAME, "main").text
    assert BREAKOUT in browser.find_element(By.TAG_NAME, "main").text


def test_what_would_be_an_error_or_a_request_is_seen(browser: Chrome, tmp_path: Path) -> None:
    bad = tmp_path / "bad.html"
    bad.write_text("<script src='http://127.0.0.1:9/x.js'></script><script>console.error('no')</script>")
    show(browser, bad)
    assert requests_outside(browser) == ["http://127.0.0.1:9/x.js"]
    assert any("no" in entry["message"] for entry in console(browser))


def test_a_number_sorts_by_value_in_both_directions_and_back(browser: Chrome, page: Path) -> None:
    show(browser, page)
    block = table_block(browser, "Cost")
    place = place_of(block, "latency")
    before = first_column(block, place)
    cell = header(block, "latency")
    states = []
    for _ in range(3):
        cell.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        states.append((cell.get_attribute("aria-sort"), first_column(block, place)))
    assert [state for state, _ in states] == ["ascending", "descending", "none"]
    keys = browser.execute_script("return [...arguments[0].querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent)", block)
    assert len(keys) == len(before)
    rising, falling, again = (texts for _, texts in states)
    assert again == before
    assert rising[-1] == falling[-1] == ""
    assert rising[:-1] == falling[:-1][::-1]
    assert rising[0].endswith("us [131, 143], unstable")
    assert " ms " in rising[-2]


def test_a_filter_leaves_matching_rows_and_says_how_many(browser: Chrome, page: Path) -> None:
    show(browser, page)
    block = table_block(browser, "Cost")
    box = block.find_element(By.CSS_SELECTOR, "input")
    box.send_keys("VIT  measured")
    assert first_column(block) == ["vit"] * 6
    assert block.find_element(By.CSS_SELECTOR, "[role=status]").text == "6 of 6 rows shown (18 without the filter)"
    box.send_keys(" nowhere")
    assert first_column(block) == []
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys(Keys.BACKSPACE)
    assert len(first_column(block)) == 18


def test_the_csv_holds_what_matches_and_runs_nothing(browser: Chrome, tmp_path: Path) -> None:
    rows = (("=1+keep", "-3.5"), ('a "b", keep', "+0.12 %"), ("-2+3|keep", "7"), ("left out", "8"))
    table = Table(headers=("name", "value"), numeric=(False, True), rows=rows)
    write_page(tmp_path, TableBlock(table=table))
    show(browser, tmp_path / "page.html")
    block = table_block(browser, "S")
    block.find_element(By.CSS_SELECTOR, "input").send_keys("keep")
    block.find_element(By.CSS_SELECTOR, ".download").click()
    found = tmp_path / "s-1.csv"
    WebDriverWait(browser, 10).until(lambda _: found.exists())
    with found.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [["name", "value"], ["'=1+keep", "-3.5"], ['a "b", keep', "+0.12 %"], ["'-2+3|keep", "7"]]


def test_legend_scale_and_panel_of_a_chart(browser: Chrome, page: Path) -> None:
    show(browser, page)
    found = figure(browser, "latency")
    assert not found.find_element(By.TAG_NAME, "img").is_displayed()
    assert plot(browser, "latency", "[plot._fullLayout.xaxis.type, plot._fullLayout.yaxis.type]") == ["log", "log"]
    button = found.find_element(By.CSS_SELECTOR, "button.y")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert eventually(browser, lambda: plot(browser, "latency", "plot._fullLayout.yaxis.type") == "linear")

    hidden = "plot._fullData.filter((trace) => trace.visible === 'legendonly').map((trace) => trace.legendgroup)"
    assert plot(browser, "latency", hidden) == []
    found.find_elements(By.CSS_SELECTOR, ".legendtoggle")[0].click()
    assert eventually(browser, lambda: plot(browser, "latency", hidden) == ["gmlp", "gmlp"])
    found.find_elements(By.CSS_SELECTOR, ".legendtoggle")[1].send_keys(Keys.ENTER)
    assert eventually(browser, lambda: set(plot(browser, "latency", hidden)) == {"gmlp", "vit"})

    values = "plot.data.filter((trace) => trace.hovertext).map((trace) => trace.y)"
    before = plot(browser, "latency", values)
    options = found.find_elements(By.CSS_SELECTOR, "select option")
    assert [option.text for option in options] == ["budget 250 k", "budget 1 M"]
    options[1].click()
    assert eventually(browser, lambda: plot(browser, "latency", values) != before)
    assert set(plot(browser, "latency", hidden)) == {"gmlp", "vit"}
    assert console(browser) == []


def test_hover_names_the_cell_its_value_and_its_state(browser: Chrome, page: Path) -> None:
    show(browser, page)
    figure(browser, "latency")
    series = plot(browser, "latency", "plot.data.findIndex((trace) => trace.hovertext && trace.name === 'gmlp')")
    browser.execute_script(
        "Plotly.Fx.hover(document.querySelector('#latency .chart'), [{curveNumber: arguments[0], pointNumber: 0}])", series
    )
    text = browser.find_element(By.CSS_SELECTOR, "#latency .hoverlayer").text
    assert "gmlp, n = 17, budget 250 k" in text
    assert "latency (ms): 0.136 [0.131, 0.143]" in text
    assert "measured, unstable" in text


def test_colours_follow_the_scheme(browser: Chrome, page: Path) -> None:
    show(browser, page)
    figure(browser, "latency")
    ink = plot(browser, "latency", "plot._fullLayout.font.color")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    assert eventually(browser, lambda: plot(browser, "latency", "plot._fullLayout.font.color") != ink)


def test_ten_thousand_rows_and_points(browser: Chrome, tmp_path: Path) -> None:
    rows = tuple((f"cell {i}", f"{i} us" if i < NUM_MANY // 2 else f"{i / 1000} ms") for i in range(NUM_MANY))
    keys = tuple((None, float((7 * i) % NUM_MANY)) for i in range(NUM_MANY))
    table = Table(headers=("name", "value"), numeric=(False, True), rows=rows, keys=keys)
    trace = {
        "type": "scatter",
        "mode": "markers",
        "name": "a",
        "x": list(range(1, NUM_MANY + 1)),
        "y": [float(i + 1) for i in range(NUM_MANY)],
    }
    axis = ChartAxis(title="t", scale="log")
    chart = Chart(x=axis, y=axis, panels=(ChartPanel(title="", traces=(trace, {**trace, "name": "b"})),))
    write_page(tmp_path, FigureBlock(name="many", title="F", caption="C", chart=chart), TableBlock(table=table))
    show(browser, tmp_path / "page.html")
    block = table_block(browser, "S")
    assert len(first_column(block)) == PAGE_ROWS
    block.find_element(By.CSS_SELECTOR, ".more").click()
    assert len(first_column(block)) == 2 * PAGE_ROWS
    header(block, "value").find_element(By.TAG_NAME, "button").click()
    assert first_column(block) == [f"cell {(i * 7143) % NUM_MANY}" for i in range(PAGE_ROWS)]
    block.find_element(By.CSS_SELECTOR, "input").send_keys("9999")
    assert first_column(block) == ["cell 9999"]
    assert block.find_element(By.CSS_SELECTOR, "[role=status]").text == "1 of 1 row shown (10,000 without the filter)"
    figure(browser, "many")
    assert plot(browser, "many", "plot.calcdata[0].length") == NUM_MANY
    assert console(browser) == []


def write_page(folder: Path, *blocks: Any) -> None:
    document = Document(title="T", subtitle="s", notice="", sections=(Section(title="S", blocks=blocks),))
    (folder / "page.html").write_text(to_html(document, {"many": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}), encoding="utf-8")


def eventually(browser: Chrome, condition: Callable[[], bool]) -> bool:
    return bool(WebDriverWait(browser, 15).until(lambda _: condition()))
