"""The site as its reader finds it: opened from its files, driven in a real browser."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.report import manual
from bench.report.manual import INDEX
from bench.report.site import EXPLORER, SEARCH_INDEX, num_bytes, write_site
from tests.browser.conftest import console, requests_outside, show
from tests.browser.test_report import control, explorer, num_inked, read_first, text, values
from tests.planted_site import NEW, OLD, OTHER, build, dead_links, plant

pytest.importorskip("selenium")
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

pytestmark = pytest.mark.slow
MAX_BYTES, MAX_SEARCH_BYTES = 2_600_000, 200_000
PAGES = (INDEX, EXPLORER, "readme.html", "docs/index.html", "docs/method.html", "docs/columns.html")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a run, one of like host and newer code, and one of another host."""
    return build(plant(tmp_path_factory.mktemp("repository")))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of this repository."""
    out = tmp_path_factory.mktemp("whole") / "site"
    write_site(manual.REPOSITORY / "results", out, manual.REPOSITORY)
    return out


def open_explorer(browser: Chrome, site: Path, state: str = "") -> WebElement:
    show(browser, site / EXPLORER)
    if state:
        browser.get(f"{(site / EXPLORER).as_uri()}#{state}")
    return explorer(browser)


def test_times_of_hosts_are_shown_apart_and_counts_together(browser: Chrome, site: Path) -> None:
    found = open_explorer(browser, site, "y=latency_ms&x=seq_len&size=budget+600+k")
    assert text(found, "message").startswith("Times of 2 hosts cannot be compared; shows zen 4")
    assert list(values(found)) == [f"{model}, timed as in {run}" for run in (OLD, NEW) for model in ("gMLP", "ViT")]
    read_first(found)
    assert text(found, "at") == "n (tokens): 17"
    control(found, "host").select_by_visible_text("zen 3, 2 cores")
    assert "Times of" not in text(found, "message")
    read_first(found)
    assert text(found, "at") == "n (tokens): 257"
    control(found, "host").select_by_visible_text("all")
    control(found, "y").select_by_visible_text("FLOPs per sample")
    assert list(values(found)) == ["gMLP", "ViT"]
    assert "Times of" not in text(found, "message")
    for n in (17, 65, 257):
        plot = found.find_element(By.CSS_SELECTOR, ".plot")
        plot.send_keys(Keys.ARROW_RIGHT)
        assert text(found, "at") == f"n (tokens): {n}"
        assert all(values(found).values())
    assert console(browser) == []


def test_the_address_restores_what_was_chosen(browser: Chrome, site: Path) -> None:
    found = open_explorer(browser, site)
    assert browser.current_url.endswith(EXPLORER)  # a first look leaves the address alone
    assert control(found, "run").first_selected_option.text == NEW
    control(found, "run").select_by_visible_text("all")
    control(found, "y").select_by_visible_text("latency, p90 (ms)")
    control(found, "model").select_by_visible_text("ViT")
    control(found, "divide by").select_by_visible_text(f"timed as in {NEW}")
    found.find_element(By.XPATH, ".//button[text()='logarithmic y']").click()
    found.find_elements(By.CSS_SELECTOR, ".legend input")[0].click()
    address, before = browser.current_url, list(values(found))
    names = ("y", "x", "run", "host", "model", "n", "divide by")
    chosen = [control(found, name).first_selected_option.text for name in names]
    show(browser, site / INDEX)
    browser.get(address)
    found = explorer(browser)
    assert [control(found, name).first_selected_option.text for name in names] == chosen
    assert list(values(found)) == before
    pressed = {button.text: button.get_attribute("aria-pressed") for button in found.find_elements(By.TAG_NAME, "button")}
    assert pressed == {"logarithmic x": "true", "logarithmic y": "false"}
    assert not found.find_element(By.CSS_SELECTOR, ".legend input").is_selected()
    assert console(browser) == []


def test_the_index_filters_sorts_and_leads_to_report_and_explorer(browser: Chrome, site: Path) -> None:
    show(browser, site / INDEX)
    block = browser.find_element(By.CSS_SELECTOR, ".table-block")
    block.find_element(By.TAG_NAME, "input").send_keys("zen 4")
    assert [row.get_attribute("id") for row in block.find_elements(By.CSS_SELECTOR, "tbody tr")] == [NEW, OLD]
    block.find_element(By.LINK_TEXT, "report").click()
    assert browser.title == "New - gmlp-bench"
    browser.back()
    browser.find_element(By.ID, OLD).find_element(By.LINK_TEXT, "explore").click()
    found = explorer(browser)
    assert control(found, "run").first_selected_option.text == OLD
    assert console(browser) == []


def search(browser: Chrome, words: str) -> list[str]:
    """Asks for the words in place of others; what is found, without the excerpts."""
    box = browser.find_element(By.TAG_NAME, "search")
    box.find_element(By.TAG_NAME, "input").send_keys(Keys.CONTROL, "a")
    box.find_element(By.TAG_NAME, "input").send_keys(words)
    status = box.find_element(By.CSS_SELECTOR, "[role=status]")
    WebDriverWait(browser, 30).until(lambda _: status.text.endswith("found"))
    return [link.text for link in box.find_elements(By.TAG_NAME, "a")]


def test_the_search_leads_from_any_page_to_headings_texts_and_runs(browser: Chrome, site: Path) -> None:
    show(browser, site / "docs" / "part.html")
    assert search(browser, "IN n²")[:2] == ["Method · In n²", "Method · In n²"]
    assert browser.find_element(By.CSS_SELECTOR, ".found p").text == "a b 1 2"
    assert search(browser, "nothing like it") == []
    assert search(browser, "cpu_other") == [f"Runs · {OTHER}"]
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.current_url == f"{(site / INDEX).as_uri()}#{OTHER}"
    assert search(browser, "n²")
    assert console(browser) == []
    assert requests_outside(browser) == []


def test_what_holds_is_found_before_what_was_tried_once(browser: Chrome, whole: Path) -> None:
    show(browser, whole / INDEX)
    pages = [found.partition(" · ")[0] for found in search(browser, "linear attention")]
    assert "Log" not in pages[:5]
    assert "Log" in [found.partition(" · ")[0] for found in search(browser, "unequal bursts")]


def test_the_search_is_moved_through_by_keyboard(browser: Chrome, site: Path) -> None:
    show(browser, site / INDEX)
    assert len(search(browser, "method")) > 1
    links = browser.find_elements(By.CSS_SELECTOR, ".found a")
    for key, expected in ((Keys.ARROW_DOWN, links[0]), (Keys.ARROW_DOWN, links[1]), (Keys.ARROW_UP, links[0])):
        browser.switch_to.active_element.send_keys(key)
        assert browser.switch_to.active_element == expected
    browser.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert browser.switch_to.active_element.tag_name == "input"
    assert not browser.find_elements(By.CSS_SELECTOR, ".found a")


@pytest.mark.parametrize("width", [1400, 390])
def test_every_page_opens_from_its_file_without_errors_and_fits(browser: Chrome, whole: Path, width: int) -> None:
    for scheme in ("light", "dark"):
        for page in PAGES:
            show(browser, whole / page, width=width, scheme=scheme)
            assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), page
            assert browser.execute_script("return getComputedStyle(document.body).maxWidth") != "none", page  # the style sheet is there
            assert console(browser) == [], page
            search(browser, "gate")
            assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), page
            assert requests_outside(browser) == [], page
    show(browser, whole / EXPLORER, width=width)
    explorer(browser)
    assert num_inked(browser) > 1000


def test_the_whole_site_is_light_and_has_no_dead_link(whole: Path) -> None:
    assert num_bytes(whole) <= MAX_BYTES
    assert (whole / SEARCH_INDEX).stat().st_size <= MAX_SEARCH_BYTES
    assert dead_links(whole) == []


def test_no_list_or_table_of_the_manual_is_left_as_text(whole: Path) -> None:
    left = re.compile(r"<p>(?:(?!</p>).)*?(?:^|>)(?:- |\d+\. |\|)", re.DOTALL | re.MULTILINE)
    assert left.search("<p>first\n- second</p>")
    assert [path.name for path in whole.rglob("*.html") if path.name != EXPLORER and left.search(path.read_text(encoding="utf-8"))] == []
