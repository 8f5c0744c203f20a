"""Finished answers: tags, packing, headers, and how little is asked of the store for many readers."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from slurm_fairshare.web.headers import HEADERS
from slurm_fairshare.web.reading import PAST_EVERY
from tests.web.conftest import Desk

PAGES = ("/", "/team/lab/vision", "/queue", "/cluster", "/budget", "/budget/1", "/api/v1/tree")


class Counted:
    """A store that counts what it is asked."""

    def __init__(self, store: Any) -> None:
        self.store, self.asked = store, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.store, name)
        if not callable(found):
            return found

        def counting(*args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return found(*args, **kwargs)

        return counting


class TestTags:
    def test_an_unchanged_page_is_not_sent_again(self, desk: Desk) -> None:
        for path in PAGES:
            first = desk.client().get(path)
            again = desk.client().get(path, {"If-None-Match": first.headers["etag"]})
            assert (again.status_code, again.content) == (304, b""), path
            assert again.headers["etag"] == first.headers["etag"]

    def test_a_browser_keeps_the_answer_but_asks_each_time(self, desk: Desk) -> None:
        assert desk.client().get("/").headers["cache-control"] == "private, no-cache"

    def test_a_changed_page_has_another_tag(self, desk: Desk) -> None:
        first = desk.client().get("/").headers["etag"]
        desk.later(minutes=1)
        assert desk.client().get("/").headers["etag"] != first


class TestPacking:
    def test_pages_are_packed_for_who_can_unpack(self, desk: Desk) -> None:
        plain = desk.client().get("/", {"Accept-Encoding": "identity"})
        packed = desk.client().get("/", {"Accept-Encoding": "gzip"})
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.text == plain.text
        assert int(packed.headers["content-length"]) * 3 < len(plain.content)

    def test_packing_is_the_same_each_time(self) -> None:
        assert gzip.compress(b"x" * 2000, 5, mtime=0) == gzip.compress(b"x" * 2000, 5, mtime=0)


class TestHeaders:
    def test_every_answer_has_them_errors_too(self, desk: Desk) -> None:
        for path in (*PAGES, "/none", "/healthz", "/static/style.css", "/api/v1/jobs/12"):
            answer = desk.client().get(path)
            for name, value in HEADERS.items():
                assert answer.headers[name] == value, path

    def test_a_head_is_a_get_without_its_body(self, desk: Desk) -> None:
        for path in PAGES:
            head, get = desk.client().ask("HEAD", path), desk.client().get(path)
            assert (head.status_code, head.content) == (200, b""), path
            assert head.headers["etag"] == get.headers["etag"]

    def test_files_are_kept_for_good_by_their_digest(self, desk: Desk) -> None:
        assert "immutable" not in desk.client().get("/static/style.css").headers["cache-control"]
        page = desk.client().page("/")
        start = page.index("/static/style.css?v=")
        address = page[start : page.index('"', start)]
        assert "immutable" in desk.client().get(address).headers["cache-control"]

    def test_only_files_that_are_meant_to_be_served_are(self, desk: Desk) -> None:
        for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/vendor/README.md", "/static/"):
            assert desk.client().get(path).status_code == 404, path


class TestHowLittleIsAsked:
    def test_a_second_reader_costs_the_store_nothing(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk()
        counted = Counted(desk.store)
        desk = replace(desk, store=counted)
        for path in PAGES:
            desk.client().get(path)
        before = counted.asked
        for path in PAGES * 20:
            assert desk.client().get(path).status_code == 200
        assert counted.asked == before

    def test_without_a_new_tick_a_look_is_two_questions(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk()
        counted = Counted(desk.store)
        desk = replace(desk, store=counted)
        desk.client().get("/")
        before = counted.asked
        desk.later(seconds=10)
        desk.client().get("/")
        assert counted.asked == before + 2  # the last tick, the changesets

    def test_sums_over_weeks_are_made_now_and_then(self, make_desk: Callable[..., Desk]) -> None:
        desk = make_desk()
        client = desk.client()
        first = client.json("/api/v1/cluster")["period"]
        desk.later(seconds=30)
        assert client.json("/api/v1/cluster")["period"] == first
        desk.later(seconds=PAST_EVERY.total_seconds())
        assert client.json("/api/v1/cluster")["period"] == first  # served while it is made anew
        until = time.monotonic() + 30
        while client.json("/api/v1/cluster")["period"] == first:
            assert time.monotonic() < until
            desk.later(seconds=5)
            time.sleep(0.05)
