"""The JSON API: what it promises in its OpenAPI description, held against what it does."""

from __future__ import annotations

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from tests.web.conftest import Desk
from tests.web.sample import NOW

EXAMPLES = 12
"""Requests tried for each operation; enough for its parameters' edges, few enough for every run of the tests."""


OPERATIONS = (
    "/api/v1/tree",
    "/api/v1/teams/{path}",
    "/api/v1/queue",
    "/api/v1/jobs/{job}",
    "/api/v1/cluster",
    "/api/v1/budget/changesets",
    "/api/v1/budget/changesets/{number}",
    "/healthz",
)


@pytest.fixture(scope="module")
def schema(shared_desk: Desk) -> Any:
    shared_desk.now = NOW
    return schemathesis.openapi.from_asgi("/api/v1/openapi.json", shared_desk.app)


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", OPERATIONS)
def test_every_answer_is_as_described(schema: Any, path: str, mode: GenerationMode) -> None:
    """Any request, valid or not: no server error, a described status, a body of the described shape."""
    operation = schema[path]["GET"]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
    def check(case: Case) -> None:
        case.call_and_validate()

    try:
        check()
    except Unsatisfiable:
        assert mode is GenerationMode.NEGATIVE, "no request can be made of the description"


def test_what_is_there_is_as_described(schema: Any, desk: Desk) -> None:
    for path, parameters in (
        ("/api/v1/teams/{path}", {"path": "lab/language/chat"}),
        ("/api/v1/jobs/{job}", {"job": str(desk.lab.stopped)}),
        ("/api/v1/jobs/{job}", {"job": str(desk.lab.waiting)}),
        ("/api/v1/budget/changesets/{number}", {"number": 3}),
    ):
        answer = schema[path]["GET"].Case(path_parameters=parameters).call_and_validate()
        assert answer.status_code == 200


class TestDescription:
    def test_every_operation_says_what_it_is_for(self, desk: Desk) -> None:
        paths = desk.client().json("/api/v1/openapi.json")["paths"]
        assert set(paths) == set(OPERATIONS)
        for path, operations in paths.items():
            assert list(operations) == ["get"], path
            assert operations["get"]["description"], path

    def test_what_is_not_there_is_told_in_json(self, desk: Desk) -> None:
        for path in ("/api/v1/teams/none", "/api/v1/jobs/12", "/api/v1/queue?page=999", "/api/v1/none"):
            answer = desk.client().get(path)
            assert answer.status_code == 404, path
            assert answer.json()["detail"]

    def test_nothing_can_be_written(self, desk: Desk) -> None:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in ("/", "/api/v1/tree", "/budget/1", "/api/v1/jobs/1"):
                assert desk.client().ask(method, path).status_code == 405, (method, path)


class TestSameData:
    def test_the_queue_is_the_same_as_on_the_page(self, desk: Desk) -> None:
        page = desk.client().page("/queue")
        for job in desk.client().json("/api/v1/queue")["jobs"]:
            assert f'href="/job/{job["job"]}"' in page

    def test_usage_and_entitlement_add_up_the_tree(self, desk: Desk) -> None:
        nodes = {node["path"]: node for node in desk.client().json("/api/v1/tree")["nodes"]}
        below = [node for path, node in nodes.items() if path.count("/") == 1]
        assert sum(node["entitled"] for node in below) == pytest.approx(nodes["lab"]["entitled"])
        assert sum(node["used"] for node in below) == pytest.approx(nodes["lab"]["used"])

    def test_no_team_gets_more_than_it_is_owed_by_the_days(self, desk: Desk) -> None:
        for day in desk.client().json("/api/v1/teams/lab/vision/video")["days"]:
            assert day["delivered"] <= day["owed"] + 1e-6 <= day["entitled"] + 1e-5

    def test_an_infinite_ratio_is_null(self, desk: Desk) -> None:
        assert "Infinity" not in desk.client().get("/api/v1/tree").text
