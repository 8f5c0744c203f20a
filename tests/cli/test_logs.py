"""The daemon's log: one line an event, and no secrets in a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Literal

import pytest
import structlog

from slurm_fairshare.cli.logs import configure_logs


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def _fail(password: str) -> None:
    raise ValueError("it broke")


@pytest.mark.parametrize("form", ["console", "json"])
def test_a_traceback_shows_no_local_variables(
    form: Literal["console", "json"], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs(form)
    try:
        _fail("".join(["s3", "cret"]))
    except ValueError:
        structlog.get_logger().error("tick failed", exc_info=True)
    written = capsys.readouterr().out
    assert "it broke" in written
    assert "s3cret" not in written
    assert "\x1b" not in written


def test_json_is_one_object_a_line_with_its_moment(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs("json")
    structlog.get_logger().info("tick", leaves=3)
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["leaves"], told["level"]) == ("tick", 3, "info")
    assert told["timestamp"].endswith("Z")
