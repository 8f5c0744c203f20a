"""What holds for every report in each of its forms: `class TestReports(Goldens)` with the reports by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from rich.cells import cell_len
from syrupy.assertion import SnapshotAssertion

from slurm_fairshare.reports.table import Form, Report, Style, render

FORMS = {
    "80 columns": Form(width=80),
    "200 columns": Form(width=200),
    "parsable": Form(style=Style.PARSABLE2),
    "json": Form(style=Style.JSON),
}


class Goldens:
    reports: ClassVar[Mapping[str, Report[Any]]]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "name" in metafunc.fixturenames:
            metafunc.parametrize("name", self.reports)

    @pytest.mark.parametrize("form", FORMS)
    def test_it_looks_as_it_did(self, name: str, form: str, snapshot: SnapshotAssertion) -> None:
        assert render(self.reports[name], FORMS[form]).plain == snapshot

    @pytest.mark.parametrize("width", [80, 120, 200])
    def test_a_table_fits_its_width(self, name: str, width: int) -> None:
        lines = render(self.reports[name], Form(width=width)).plain.splitlines()
        assert max(cell_len(line) for line in lines) <= width

    def test_json_is_json_everywhere(self, name: str) -> None:
        text = render(self.reports[name], Form(style=Style.JSON)).plain
        json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))

    def test_every_line_of_parsable_has_the_same_number_of_fields(self, name: str) -> None:
        lines = render(self.reports[name], Form(style=Style.PARSABLE2)).plain.splitlines()
        assert len({line.count("|") for line in lines}) == 1
