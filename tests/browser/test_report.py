"""A report as its reader finds it, driven in a real browser."""

from __future__ import annotations

import csv
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas
import pytest

from bench.analysis.study import Study
from bench.analysis.trust import Concern
from bench.report.document import Document, ExplorerBlock, Section, TableBlock
from bench.report.explorer import explorer_data
from bench.report.html import PAGE_ROWS, to_html
from bench.report.tables import Table
from bench.report.write import write_report
from tests.browser.conftest import console, requests_outside, show
from tests.report.conftest import build

pytest.importorskip("selenium")
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.slow
ATTACK = "<script>alert(1)</script>"
BREAKOUT = "</script><img src=x onerror=alert(2)>&lt;b&gt;\"'"
NUM_MANY = 10_000


@pytest.fixture(scope="module")
def specimen() -> Study:
    """Two sizes, so that figures have panels; one cell failed, one unstable; names and reasons that attack."""

    def change(rows: pandas.DataFrame) -> None:
        rows.loc[0, "latency_stable"] = False
        rows.loc[5, ["status", "reason", "latency_ms"]] = ["out_of_memory", BREAKOUT, None]

    concern = Concern(text=BREAKOUT, advice=BREAKOUT, serious=True)
    return build(
        models=("gmlp", "vit", ATTACK), budgets=(250_000, 1_000_000), works=({"task": "digits"},), change=change, concerns=[concern]
    )


@pytest.fixture(scope="module")
def page(specimen: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    write_report(specimen, folder)
    return folder / "report.html"


def explorer(browser: Chrome) -> WebElement:
    """Unpacked and scrolled into view."""
    found = browser.find_element(By.CSS_SELECTOR, ".explorer")
    WebDriverWait(browser, 30).until(lambda _: found.is_displayed())
    browser.execute_script("arguments[0].scrollIntoView()", found)
    return found


def control(found: WebElement, label: str) -> Select:
    return Select(found.find_element(By.XPATH, f".//label[starts-with(., '{label} ')]/select"))


def values(found: WebElement) -> dict[str, str]:
    """The read-out of each line by its name."""
    items = found.find_elements(By.CSS_SELECTOR, ".legend li")
    return {item.find_element(By.TAG_NAME, "label").text: item.find_element(By.CSS_SELECTOR, ".value").text for item in items}


def read_first(found: WebElement) -> dict[str, str]:
    """The read-out at the smallest x, by keyboard."""
    found.find_element(By.CSS_SELECTOR, ".plot").send_keys(Keys.ARROW_RIGHT)
    return values(found)


def text(found: WebElement, name: str) -> str:
    return found.find_element(By.CSS_SELECTOR, f".{name}").text


def num_inked(browser: Chrome) -> int:
    """Pixels of the chart with something drawn on them."""
    script = """const canvas = document.querySelector(".explorer canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    return data.filter((value, i) => i % 4 === 3 && value > 0).length"""
    return int(browser.execute_script(script))


def first_column(block: WebElement, column: int = 0) -> list[str]:
    script = "return [...arguments[0].querySelectorAll('tbody tr')].map((row) => row.cells[arguments[1]].textContent)"
    return list(block.parent.execute_script(script, block, column))


def table_block(browser: Chrome, heading: str) -> WebElement:
    return browser.find_element(By.XPATH, f"//section[h2='{heading}']//div[@class='table-block']")


def all_rows(browser: Chrome) -> WebElement:
    """The table of all rows, unfolded by keyboard."""
    folded = browser.find_element(By.XPATH, "//details[summary/h2='All rows']")
    folded.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
    assert folded.get_attribute("open")
    return folded.find_element(By.CSS_SELECTOR, ".table-block")


def header(block: WebElement, text: str) -> WebElement:
    return next(th for th in block.find_elements(By.CSS_SELECTOR, "thead th") if th.text.startswith(text))


def place_of(block: WebElement, text: str) -> int:
    return [th.text for th in block.find_elements(By.CSS_SELECTOR, "thead th")].index(header(block, text).text)


def unfold(browser: Chrome) -> None:
    browser.execute_script("for (const found of document.querySelectorAll('details')) found.open = true")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_no_error_no_request_no_alert_and_no_sideways_scroll(browser: Chrome, page: Path, width: int, scheme: str) -> None:
    show(browser, page, width=width, scheme=scheme)
    assert num_inked(browser) > 1000
    control(explorer(browser), "model").select_by_visible_text(ATTACK)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert len(browser.find_elements(By.CSS_SELECTOR, "figure svg[role=img]")) == len(browser.find_elements(By.TAG_NAME, "figure")) > 0
    unfold(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
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
    block = all_rows(browser)
    place = place_of(block, "latency")
    before = first_column(block, place)
    cell = header(block, "latency")
    states = []
    for _ in range(3):
        cell.find_element(By.TAG_NAME, "button").send_keys(Keys.ENTER)
        states.append((cell.get_attribute("aria-sort"), first_column(block, place)))
    assert [state for state, _ in states] == ["ascending", "descending", "none"]
    rising, falling, again = (texts for _, texts in states)
    assert again == before
    assert rising[-1] == falling[-1] == ""
    assert rising[:-1] == falling[:-1][::-1]
    assert " us " in rising[0]
    assert " ms " in rising[-2]


def test_a_filter_leaves_matching_rows_and_says_how_many(browser: Chrome, page: Path) -> None:
    show(browser, page)
    block = all_rows(browser)
    box = block.find_element(By.CSS_SELECTOR, "input")
    box.send_keys("VIT  measured")
    assert first_column(block) == ["vit"] * 6
    assert block.find_element(By.CSS_SELECTOR, "[role=status]").text == "6 of 6 rows shown (18 without the filter)"
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


def test_the_first_view_is_latency_against_n_with_exact_values(browser: Chrome, page: Path, specimen: Study) -> None:
    show(browser, page)
    found = explorer(browser)
    shown = [control(found, name).first_selected_option.text for name in ("y", "x", "model", "size", "n")]
    assert shown == ["latency (ms)", "n (tokens)", "one line each", "budget 1 M", "all"]
    control(found, "size").select_by_visible_text("budget 250 k")
    row = specimen.rows.iloc[0]
    low, high = (f"{row[bound]:.3g}" for bound in ("latency_low_ms", "latency_high_ms"))
    assert read_first(found)["gMLP"] == f"{row['latency_ms']:.3g} ms [{low}, {high}], latency unstable"
    by_key, over = values(found), found.find_element(By.CSS_SELECTOR, ".u-over")
    assert text(found, "at") == "n (tokens): 17"
    found.find_element(By.CSS_SELECTOR, ".plot").send_keys(Keys.ARROW_RIGHT)
    assert text(found, "at") == "n (tokens): 65"
    assert values(found)[ATTACK] == ""  # it ran out of memory
    ActionChains(browser).move_to_element_with_offset(over, 30 - over.size["width"] // 2, 0).perform()
    assert eventually(browser, lambda: text(found, "at") == "n (tokens): 17")
    assert values(found) == by_key
    assert console(browser) == []


def test_another_y_and_x_by_keyboard(browser: Chrome, page: Path, specimen: Study) -> None:
    show(browser, page)
    found = explorer(browser)
    found.find_element(By.XPATH, ".//label[starts-with(., 'y ')]/select").send_keys("peak")
    assert control(found, "y").first_selected_option.text == "peak memory (MiB)"
    sizes = specimen.rows.query("model == 'vit' and seq_len == 17")["peak_memory_bytes"] / 2**20
    shown, unit = read_first(found)["ViT"].split()
    assert unit == "MiB"
    assert any(float(shown) == pytest.approx(size, rel=5e-3) for size in sizes)
    control(found, "x").select_by_visible_text("parameters")
    assert control(found, "size").first_selected_option.text == "all"
    assert control(found, "n").first_selected_option.text == "17"
    assert "Rows with n = 17 only" in text(found, "message")
    read_first(found)
    assert text(found, "at").startswith("parameters: ")


def test_dividing_by_a_baseline_gives_ratios_and_says_what_they_are(browser: Chrome, page: Path, specimen: Study) -> None:
    show(browser, page)
    found = explorer(browser)
    assert text(found, "message") == ""
    control(found, "divide by").select_by_visible_text("ViT")
    ratios = read_first(found)
    latency = specimen.rows[(specimen.rows["seq_len"] == 17) & (specimen.rows["budget"] == 1_000_000)].set_index("model")["latency_ms"]
    assert ratios["ViT"] == "1"
    assert float(ratios["gMLP"]) == pytest.approx(latency["gmlp"] / latency["vit"], rel=5e-3)
    assert "without intervals; Pair by pair has paired ratios with intervals" in text(found, "message")
    control(found, "x").select_by_visible_text("parameters")
    assert "Not shown, for lack of a point at an x of ViT: gMLP" in text(found, "message")


def test_a_filter_without_rows_takes_the_others_along(browser: Chrome, tmp_path: Path) -> None:
    """Each engine was measured at a batch of its own."""
    works = ({"engine": "eager", "batch_size": 1}, {"engine": "compile", "batch_size": 32})
    write_page(tmp_path, ExplorerBlock(data=explorer_data(build(works=works, metrics=("params", "latency")).frame) or {}))
    show(browser, tmp_path / "page.html")
    found = explorer(browser)
    engine, batch = control(found, "engine"), control(found, "batch")
    assert (engine.first_selected_option.text, batch.first_selected_option.text) == ("eager", "batch 1")
    engine.select_by_visible_text("compile")
    assert batch.first_selected_option.text == "batch 32"
    assert all(read_first(found).values())


def test_a_scale_and_a_line_are_switched_by_keyboard(browser: Chrome, page: Path) -> None:
    show(browser, page)
    found = explorer(browser)
    before = num_inked(browser)
    button = found.find_element(By.XPATH, ".//button[text()='logarithmic y']")
    assert button.get_attribute("aria-pressed") == "true"
    button.send_keys(Keys.ENTER)
    assert button.get_attribute("aria-pressed") == "false"
    assert num_inked(browser) != before
    boxes = found.find_elements(By.CSS_SELECTOR, ".legend input")
    boxes[0].send_keys(Keys.SPACE)
    assert not boxes[0].is_selected()
    read = read_first(found)
    assert (read["gMLP"], bool(read["ViT"])) == ("", True)
    assert console(browser) == []


def test_the_explorer_follows_the_scheme_and_the_width(browser: Chrome, page: Path) -> None:
    show(browser, page)
    found = explorer(browser)
    pixel = 'return [...document.querySelector(".explorer canvas").getContext("2d").getImageData(0, 0, 60, 400).data].join()'
    before, width = browser.execute_script(pixel), found.find_element(By.TAG_NAME, "canvas").size["width"]
    ink = "const text = document.querySelector('figure svg text'); return [getComputedStyle(text).fill, getComputedStyle(document.body).color]"
    light = browser.execute_script(ink)
    assert light[0] == light[1]  # a figure's text is as dark or light as the page's own
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    assert eventually(browser, lambda: browser.execute_script(pixel) != before)
    dark = browser.execute_script(ink)
    assert dark[0] == dark[1] != light[0]
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": 390, "height": 900, "deviceScaleFactor": 1, "mobile": True})
    assert eventually(browser, lambda: found.find_element(By.TAG_NAME, "canvas").size["width"] < min(390, width))


def test_a_field_of_the_strip_leads_to_its_rows(browser: Chrome, page: Path) -> None:
    show(browser, page)
    field = browser.find_element(By.CSS_SELECTOR, ".strip a.rows")
    assert "times as long as" in (field.get_attribute("aria-label") or "")
    field.send_keys(Keys.ENTER)
    folded = browser.find_element(By.XPATH, "//details[summary/h2='All rows']")
    assert folded.get_attribute("open")
    assert sorted(first_column(folded)) == sorted(("gmlp", "vit", ATTACK))


def test_headings_and_landmarks_outline_the_page(browser: Chrome, page: Path) -> None:
    show(browser, page)
    outline = "return [...document.querySelectorAll('h1, h2, h3')].map((found) => Number(found.tagName[1]))"
    levels = browser.execute_script(outline)
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert [len(browser.find_elements(By.TAG_NAME, tag)) for tag in ("header", "main", "h1")] == [1, 1, 1]
    assert not browser.execute_script("return [...document.querySelectorAll('section')].some((s) => !s.getAttribute('aria-labelledby'))")


def test_print_and_a_page_without_scripts_have_no_explorer(browser: Chrome, page: Path) -> None:
    show(browser, page)
    num_open = "return document.querySelectorAll('details.section[open]').length"
    browser.execute_script("window.dispatchEvent(new Event('beforeprint'))")  # paper shows every section
    assert browser.execute_script(num_open) == len(browser.find_elements(By.CSS_SELECTOR, "details.section"))
    browser.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert browser.execute_script(num_open) == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.find_element(By.CSS_SELECTOR, ".explorer").is_displayed()
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        show(browser, page)
        assert not browser.find_element(By.CSS_SELECTOR, ".explorer").is_displayed()
        assert "The interactive explorer needs scripts" in browser.find_element(By.TAG_NAME, "noscript").text
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_ten_thousand_rows_and_points(browser: Chrome, tmp_path: Path) -> None:
    rows = tuple((f"cell {i}", f"{i} us" if i < NUM_MANY // 2 else f"{i / 1000} ms") for i in range(NUM_MANY))
    keys = tuple((None, float((7 * i) % NUM_MANY)) for i in range(NUM_MANY))
    table = Table(headers=("name", "value"), numeric=(False, True), rows=rows, keys=keys)
    write_page(tmp_path, TableBlock(table=table))
    show(browser, tmp_path / "page.html")
    block = table_block(browser, "S")
    assert len(first_column(block)) == PAGE_ROWS
    block.find_element(By.CSS_SELECTOR, ".more").click()
    assert len(first_column(block)) == 2 * PAGE_ROWS
    header(block, "value").find_element(By.TAG_NAME, "button").click()
    assert first_column(block) == [f"cell {(i * 7143) % NUM_MANY}" for i in range(PAGE_ROWS)]
    block.find_element(By.CSS_SELECTOR, "input").send_keys("9999")
    assert first_column(block) == ["cell 9999"]
    assert console(browser) == []


def test_on_a_phone_the_strip_keeps_its_first_column_and_figures_scroll_at_a_readable_size(browser: Chrome, page: Path) -> None:
    show(browser, page, width=390)
    script = """const strip = document.querySelector(".strip");
    strip.querySelector("table").style.width = "60rem";
    strip.scrollLeft = 200;
    const left = strip.getBoundingClientRect().left;
    return [strip.scrollLeft, ...[...strip.querySelectorAll("tr > th:first-child")].map((cell) => cell.getBoundingClientRect().left - left)]"""
    scrolled, *offsets = browser.execute_script(script)
    assert scrolled == 200
    assert all(0 <= offset <= 2 for offset in offsets)
    widths = (
        "const svg = document.querySelector('figure svg'); return [svg.getBoundingClientRect().width, parseFloat(svg.style.width) * 4 / 3]"
    )
    shown, natural = browser.execute_script(widths)
    assert shown == pytest.approx(0.75 * natural, abs=1)  # text of 9 px


def write_page(folder: Path, *blocks: Any) -> None:
    document = Document(title="T", subtitle="s", notice="", sections=(Section(title="S", blocks=blocks),))
    (folder / "page.html").write_text(to_html(document, {}), encoding="utf-8")


def eventually(browser: Chrome, condition: Callable[[], bool]) -> bool:
    return bool(WebDriverWait(browser, 15).until(lambda _: condition()))
