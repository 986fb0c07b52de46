"""The page in a real browser: quiet, sortable, self-contained, and no wider than the screen."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from fix_written import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

    from savermark.report import Report


@pytest.fixture
def visit(browser: Chrome) -> Callable[..., list[str]]:
    """Opens a page at a width and returns the addresses that it asked for beside itself."""

    def go(page: Path, width: int = 1400, scheme: str = "light") -> list[str]:
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        media = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in media.items()]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.get("about:blank")
        browser.get_log("browser")
        browser.get_log("performance")
        browser.get(page.as_uri())
        return [url for url in _requested(browser) if url not in (page.as_uri(), "about:blank")]

    return go


def _requested(browser: Chrome) -> list[str]:
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    return [str(params["request"]["url"]) for params in sent]


def _column(browser: Chrome, name: str) -> tuple[WebElement, Callable[[], list[Any]]]:
    """The heading's button of a column, and what reads the column's values from top to bottom."""
    heads = browser.find_elements(By.CSS_SELECTOR, "table[data-sortable] thead th")
    place = [head.text.strip() for head in heads].index(name)
    script = """return [...document.querySelectorAll('table[data-sortable] tbody tr')]
        .map(row => row.cells[arguments[0]])
        .map(cell => cell.dataset.value ?? cell.textContent.trim())"""
    button = heads[place].find_element(By.TAG_NAME, "button")
    return button, lambda: list(browser.execute_script(script, place))


@pytest.mark.parametrize("kind", ["good", "bad"])
def test_nothing_is_fetched_and_the_console_is_silent(
    kind: str, browser: Chrome, visit: Callable[..., list[str]], request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(f"{kind}_report")
    asked = [url for url in visit(report.page) if not url.startswith("data:")]
    assert asked == []
    assert browser.get_log("browser") == []
    resources = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => entry.name)"
    )
    assert [name for name in resources if not name.startswith("data:")] == []
    assert browser.title.startswith("savermark: ")


def test_the_policy_forbids_what_the_page_does_not_need(
    good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(good_report.page)
    browser.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.pwned = 1';"
        "document.body.append(s)"
    )
    assert browser.execute_script("return window.pwned") is None
    blocked = browser.execute_async_script(
        "const done = arguments[0]; const image = new Image();"
        "image.onerror = () => done(true); image.onload = () => done(false);"
        "image.src = 'http://127.0.0.1:9/x.png'"
    )
    assert blocked is True


def test_a_click_sorts_by_number_and_turns_round(
    good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(good_report.page)
    button, values = _column(browser, "bytes / thread")
    head = button.find_element(By.XPATH, "..")
    assert head.get_attribute("aria-sort") is None
    before = [float(value) for value in values()]
    button.click()
    assert head.get_attribute("aria-sort") == "ascending"
    assert [float(value) for value in values()] == sorted(before) != before
    button.click()
    assert head.get_attribute("aria-sort") == "descending"
    assert [float(value) for value in values()] == sorted(before, reverse=True)
    assert len(browser.find_elements(By.CSS_SELECTOR, "th[aria-sort]")) == 1


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE], ids=["enter", "space"])
def test_the_keyboard_sorts_too(
    key: str, good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(good_report.page)
    button, values = _column(browser, "backend")
    before = values()
    button.send_keys(key)
    assert values() == sorted(before) != before
    assert button.find_element(By.XPATH, "..").get_attribute("aria-sort") == "ascending"
    assert browser.switch_to.active_element == button


def test_missing_values_stay_last(
    bad_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(bad_report.page)
    button, values = _column(browser, "bytes / thread")
    for _ in range(2):
        button.click()
        assert [bool(value) for value in values()] == [True, False, False, False]


@pytest.mark.parametrize("width", [390, 768, 1400])
@pytest.mark.parametrize("kind", ["good", "bad"])
def test_no_width_needs_sideways_scrolling(
    kind: str,
    width: int,
    browser: Chrome,
    visit: Callable[..., list[str]],
    request: pytest.FixtureRequest,
) -> None:
    visit(request.getfixturevalue(f"{kind}_report").page, width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    inner, wide = browser.execute_script(
        "const root = document.documentElement; return [root.clientWidth, root.scrollWidth]"
    )
    assert wide <= inner <= width
    # What is wider than the page scrolls inside its own box.
    boxes = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].map(b => b.getBoundingClientRect().right)"
    )
    assert all(right <= inner for right in boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_plots_follow_light_and_dark(
    scheme: str, good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(good_report.page, scheme=scheme)
    script = """const lum = c => c.match(/\\d+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 765;
        const style = (e, p) => getComputedStyle(e)[p];
        return [lum(style(document.body, 'color')), lum(style(document.body, 'backgroundColor')),
                lum(style(document.querySelector('figure svg text'), 'fill')),
                lum(style(document.querySelector('figure svg path'), 'fill'))]"""
    ink, paper, plot_ink, plot_paper = browser.execute_script(script)
    dark = scheme == "dark"
    assert (ink > paper) == dark and abs(ink - paper) > 0.6
    assert (plot_ink > plot_paper) == dark and abs(plot_ink - plot_paper) > 0.4


def test_the_text_of_plots_lies_inside_them(
    good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    """Measured by the browser, with the fonts it really uses."""
    visit(good_report.page)
    outside = browser.execute_script(
        """return [...document.querySelectorAll('figure svg')].flatMap(svg => {
            const box = svg.getBoundingClientRect();
            return [...svg.querySelectorAll('text')].filter(text => {
                const t = text.getBoundingClientRect();
                return t.left < box.left - 1 || t.right > box.right + 1
                    || t.top < box.top - 1 || t.bottom > box.bottom + 1;
            }).map(text => text.textContent)})"""
    )
    assert outside == []


def test_a_hostile_cause_is_only_text(
    bad_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(bad_report.page)
    assert browser.find_elements(By.CSS_SELECTOR, "img, [onerror]") == []
    assert HOSTILE in browser.execute_script("return document.body.innerText")


def test_ids_are_unique(
    good_report: Report, browser: Chrome, visit: Callable[..., list[str]]
) -> None:
    visit(good_report.page)
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len(set(ids))
