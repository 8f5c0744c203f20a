"""The dashboard in headless Chromium, as people meet it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.web.conftest import Desk

DARK_BACK, LIGHT_BACK = "rgb(18, 22, 29)", "rgb(246, 247, 249)"


class Visit:
    """A tab, and everything its console complained about."""

    def __init__(self, page: Page, address: str) -> None:
        self.page, self.address, self.complaints = page, address, list[str]()
        page.on("console", lambda message: self._heard(message.type, message.text))
        page.on("pageerror", lambda error: self._heard("error", str(error)))
        page.on("requestfailed", lambda request: self._failed(request.url, request.failure or ""))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(f"{kind}: {text}")

    def _failed(self, address: str, why: str) -> None:
        if why != "net::ERR_ABORTED":  # the next page was asked for before this one had its picture
            self.complaints.append(f"{address}: {why}")

    def to(self, path: str) -> Page:
        answer = self.page.goto(self.address + path, wait_until="load")
        assert answer is not None
        assert answer.status == 200, path
        return self.page


@pytest.fixture
def visit(browser: Browser, address: str, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A tab of its own; `indirect` parameters are those of the browser's context."""
    more: dict[str, Any] = getattr(request, "param", {})
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **more})
    made = Visit(context.new_page(), address)
    yield made
    context.close()
    assert made.complaints == []


@pytest.fixture
def places(desk: Desk) -> dict[str, str]:
    return {
        "tree": "/",
        "programme": "/team/lab/vision",
        "team": "/team/lab/language/chat",
        "queue": "/queue",
        "stopped job": f"/job/{desk.lab.stopped}",
        "waiting job": f"/job/{desk.lab.waiting}",
        "cluster": "/cluster",
        "budget": "/budget",
        "changeset": "/budget/2",
    }


LOOKS = {
    "desktop": {},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}


@pytest.mark.parametrize("visit", LOOKS.values(), ids=LOOKS.keys(), indirect=True)
def test_every_page_loads_without_a_complaint_and_fits_its_width(visit: Visit, places: dict[str, str]) -> None:
    for name, path in places.items():
        page = visit.to(path)
        assert page.locator("h1").count() == 1, name
        wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"{name} is {wide} pixels too wide"


def test_why_nodes_are_kept_stands_beside_numbers_that_stay_whole(visit: Visit, desk: Desk) -> None:
    """A long sentence must not squeeze the columns beside it."""
    for path in ("/queue", "/cluster"):
        page = visit.to(path)
        for one in desk.lab.kept:
            row = page.locator("tr", has=page.get_by_role("link", name=str(one.job_id), exact=True))
            assert "nobody else starts there" in row.inner_text() or "ends before that may start" in row.inner_text()
            box = row.get_by_role("link", name=str(one.job_id), exact=True).bounding_box()
            assert box is not None
            assert box["height"] < 25, f"{one.job_id} is broken over lines"


def test_charts_are_drawn_with_something_in_them(visit: Visit) -> None:
    for path, count in (("/team/lab/language/chat", 2), ("/cluster", 1)):
        page = visit.to(path)
        page.wait_for_selector("[data-drawn=yes] canvas")
        assert page.locator("[data-drawn=yes] canvas").count() == count
        for place in page.locator("[data-chart]").all():
            assert place.evaluate(COLOURS) > 20, path
            assert place.get_attribute("aria-label")


COLOURS = """place => {
    const canvas = place.querySelector("canvas");
    const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) seen.add(data[i] << 16 | data[i + 1] << 8 | data[i + 2]);
    return seen.size;
}"""


@pytest.mark.parametrize(
    ("visit", "back"),
    [({"color_scheme": "light"}, LIGHT_BACK), ({"color_scheme": "dark"}, DARK_BACK)],
    ids=["light", "dark"],
    indirect=["visit"],
)
def test_colours_follow_the_readers_system_and_words_stay_readable(visit: Visit, back: str) -> None:
    page = visit.to("/")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == back
    for selector in ("h1", ".age", ".mood", "tbody th a", ".small", "nav a[aria-current]"):
        assert contrast(page, selector) >= 4.5, selector


def test_colours_change_with_the_system_while_the_page_is_open(visit: Visit) -> None:
    page = visit.to("/cluster")
    page.wait_for_selector("[data-drawn=yes] canvas")
    before = page.locator("[data-chart]").first.screenshot()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == DARK_BACK
    assert page.locator("[data-chart]").first.screenshot() != before


def contrast(page: Page, selector: str) -> float:
    """WCAG's contrast of a text to what is behind it, the worst of all that match."""
    pairs = page.evaluate(
        """selector => [...document.querySelectorAll(selector)].map(one => {
            let back = one;
            while (back && getComputedStyle(back).backgroundColor === "rgba(0, 0, 0, 0)") back = back.parentElement;
            return [getComputedStyle(one).color, getComputedStyle(back || document.body).backgroundColor];
        })""",
        selector,
    )
    assert pairs, f"nothing is {selector}"
    return min(_ratio(luminance(front), luminance(back)) for front, back in pairs)


def _ratio(one: float, other: float) -> float:
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def luminance(colour: str) -> float:
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_keyboard_reaches_everything_in_order_and_one_sees_where_it_is(
    visit: Visit, places: dict[str, str]
) -> None:
    for name, path in places.items():
        page = visit.to(path)
        wanted = page.locator("a:visible, button:visible, input:visible, summary:visible").count()
        reached = 0
        for _ in range(wanted + 1):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body || document.activeElement === null"):
                break
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", name
            reached += 1
        assert reached >= wanted, f"{name}: {reached} of {wanted}"


def test_the_first_stop_of_the_keyboard_skips_to_the_content(visit: Visit) -> None:
    page = visit.to("/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert page.url.endswith("#main")


def test_a_job_is_found_by_its_number(visit: Visit, desk: Desk) -> None:
    page = visit.to("/")
    page.get_by_label("Job number").fill(str(desk.lab.stopped))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/job/{desk.lab.stopped}")
    assert "was told to yield" in page.inner_text("main")


def test_one_walks_from_the_tree_to_a_team_to_a_job_and_back(visit: Visit) -> None:
    page = visit.to("/")
    page.get_by_role("link", name="language", exact=True).click()
    page.get_by_role("link", name="chat", exact=True).first.click()
    page.wait_for_url("**/team/lab/language/chat")
    page.locator("#queue a").first.click()
    page.wait_for_url("**/job/*")
    assert "Why" in page.inner_text("main")
    page.go_back()
    page.get_by_role("link", name="All teams").click()
    page.wait_for_url(re.compile(r":\d+/$"))


def test_the_queue_is_turned_page_by_page(visit: Visit) -> None:
    page = visit.to("/queue")
    page.get_by_role("link", name="Next").click()
    page.wait_for_url("**/queue?page=2")
    assert "Page 2 of 2" in page.inner_text("#queue")


def test_a_page_renews_itself_without_a_reload_and_draws_again(visit: Visit) -> None:
    page = visit.to("/cluster")
    page.wait_for_selector("[data-drawn=yes] canvas")
    page.evaluate("window.stays = true; document.querySelector('h1').textContent = 'old'")
    page.evaluate("document.dispatchEvent(new Event('fairshare:renew'))")
    page.locator("h1", has_text="Cluster").wait_for()
    page.wait_for_selector("[data-drawn=yes] canvas")
    assert page.evaluate("window.stays")


@pytest.mark.parametrize("visit", [{"java_script_enabled": False}], ids=["no script"], indirect=True)
def test_without_scripts_everything_but_the_charts_is_there(visit: Visit) -> None:
    page = visit.to("/team/lab/language/chat")
    assert page.locator("#queue tbody tr").count() > 5
    assert page.locator("details").count() >= 1
