"""What holds for every report: its columns, drawn in five ways."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.text import Text

from slurm_fairshare.reports.table import Column, FieldError, Form, Report, Style, render, wrap

Values = dict[str, Any]

COLUMNS: tuple[Column[Values], ...] = (
    Column("Account", lambda row: row["account"], "", indent=lambda row: row.get("depth", 0), elastic=True),
    Column("RawShares", lambda row: row.get("shares"), "", right=True, spare=1),
    Column("LevelFS", lambda row: row.get("fs"), "", right=True, spare=2, paint=lambda _: "red"),
)
ALL = tuple(column.name for column in COLUMNS)


def drawn(rows: list[Values], style: Style = Style.TABLE, **form: Any) -> str:
    report = Report("shares", COLUMNS, rows, ALL, above=("A sentence.",), facts={"stale": False}, empty="Nobody.")
    return render(report, Form(style, **form)).plain


def test_a_table_reads_like_sshares() -> None:
    rows = [{"account": "lab", "shares": 1}, {"account": "vision", "depth": 1, "fs": 0.5}]
    assert drawn(rows) == (
        "A sentence.\n"
        "Account RawShares  LevelFS\n"
        "------- --------- --------\n"
        "lab             1\n"
        " vision           0.500000\n"
    )


def test_no_header_leaves_only_the_rows() -> None:
    assert drawn([{"account": "lab"}], header=False) == "lab\n"


def test_parsable_ends_with_a_bar_only_with_small_p() -> None:
    rows = [{"account": "lab", "shares": 1}]
    assert drawn(rows, Style.PARSABLE2) == "Account|RawShares|LevelFS\nlab|1|\n"
    assert drawn(rows, Style.PARSABLE) == "Account|RawShares|LevelFS|\nlab|1||\n"


def test_a_tree_is_not_indented_for_programs() -> None:
    assert drawn([{"account": "vision", "depth": 3}], Style.PARSABLE2, header=False) == "vision||\n"


def test_a_bar_or_a_line_break_in_a_name_shifts_no_field() -> None:
    assert drawn([{"account": "a|b\nc"}], Style.PARSABLE2, header=False) == "a¦b c||\n"


def test_csv_and_json_keep_a_name_whole() -> None:
    rows = [{"account": 'a|b,"c"'}]
    assert drawn(rows, Style.CSV, header=False) == '"a|b,""c""",,\n'
    assert json.loads(drawn(rows, Style.JSON))["shares"][0]["account"] == 'a|b,"c"'


def test_infinity_is_inf_in_text_and_null_in_json() -> None:
    rows = [{"account": "lab", "fs": math.inf}]
    assert "|inf" in drawn(rows, Style.PARSABLE2)
    assert json.loads(drawn(rows, Style.JSON))["shares"][0]["level_fs"] is None


def test_json_has_the_facts_beside_the_rows_and_moments_with_their_zone() -> None:
    report = Report(
        "rows", COLUMNS[:1], [{"account": datetime(2026, 1, 1, tzinfo=UTC)}], ALL[:1], facts={"age": timedelta(1)}
    )
    told = json.loads(render(report, Form(Style.JSON)).plain)
    assert told == {"age": 86400.0, "rows": [{"account": "2026-01-01T00:00:00Z"}]}


def test_fields_are_chosen_as_in_sshare_by_the_beginning_of_their_name_in_any_case() -> None:
    rows = [{"account": "lab", "shares": 7}]
    assert drawn(rows, Style.PARSABLE2, fields="raw,ACC", header=False) == "7|lab\n"


def test_a_percent_sign_sets_a_fields_width_and_a_cut_name_ends_with_a_plus() -> None:
    assert drawn([{"account": "vision", "shares": 1}], fields="Account%-4,Raw", header=False) == "vis+ 1\n"


@pytest.mark.parametrize("fields", ["Nonsense", "Account%", "Account%x"])
def test_an_unknown_field_is_an_error_that_names_the_remedy(fields: str) -> None:
    with pytest.raises(FieldError, match=r"choose from Account, RawShares, LevelFS|such as Account%30") as caught:
        drawn([], fields=fields)
    assert caught.value.exit_code == 1


def test_where_room_is_short_the_least_useful_columns_go_and_are_named() -> None:
    rows = [{"account": "lab", "shares": 1, "fs": 0.5}]
    assert "Account RawShares\n" in drawn(rows, width=20)
    assert "Left out to fit 20 columns: LevelFS" in drawn(rows, width=20).replace("\n", " ")


def test_fields_that_were_asked_for_are_never_left_out() -> None:
    assert "LevelFS" in drawn([{"account": "lab", "fs": 0.5}], width=10, fields="Account,LevelFS")


def test_a_long_name_is_cut_before_the_line_breaks() -> None:
    line = drawn([{"account": "a" * 50}], width=30, fields="Account", header=False)
    assert line == "a" * 29 + "+\n"


def test_nothing_a_user_named_reaches_the_terminal_as_a_command() -> None:
    assert "\x1b" not in drawn([{"account": "\x1b[31mred"}])


def test_wide_characters_count_by_the_room_they_take() -> None:
    lines = drawn([{"account": "研究", "shares": 1}, {"account": "ab", "shares": 2}], header=False).splitlines()
    assert lines == ["研究 1", "ab   2"]


def test_without_rows_a_sentence_says_so() -> None:
    assert drawn([]) == "A sentence.\nNobody.\n"


def test_colour_is_kept_apart_from_the_text() -> None:
    report = Report("shares", COLUMNS, [{"account": "lab", "fs": 0.5}], ALL)
    assert any(span.style == "red" for span in render(report, Form()).spans)


def test_sentences_break_between_words() -> None:
    assert [part.plain for part in wrap(Text("one two three"), 8)] == ["one two", "three"]
