"""A headless Chromium, where there is one. Without it these tests are skipped, and fail where CI_BROWSER=1 says that there has to be one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")
LOCAL = ("file", "data", "blob")
NOT_RUN = "BROWSER NOT RUN: chromium and chromedriver are not both installed"


def _found() -> tuple[str, str] | None:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Chrome]:
    found = _found()
    if found is None:
        if os.environ.get("CI_BROWSER") == "1":
            pytest.fail(NOT_RUN)
        with pytestconfig.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print(f"\n{NOT_RUN}")  # noqa: T201 - a skip alone is easily overlooked
        pytest.skip(NOT_RUN)
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    for argument in (*ARGUMENTS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.binary_location = found[0]
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(found[1]))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


def show(browser: Chrome, page: Path, *, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
    """Opens a page from its file in a window of this size, with fresh logs."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    )
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(page.parent)})
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(page.as_uri())


def console(browser: Chrome) -> list[dict[str, Any]]:
    """Warnings and errors since the page was opened."""
    return list(browser.get_log("browser"))


def requests_outside(browser: Chrome) -> list[str]:
    """Addresses asked for since the page was opened that are neither the file nor inside it."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    addresses = [message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"]
    assert any(urlsplit(address).scheme == "file" for address in addresses), "the log holds not even the page itself"
    return [address for address in addresses if urlsplit(address).scheme not in LOCAL]
