"""sreport's GPU-seconds by account and user."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import SlurmUnreadable
from slurm_fairshare.slurm.sreport import parse_report, reported
from tests.slurm.fake import NOW, Tools

TEXT = "root||gres/gpu|60\nroot||cpu|7\nBio||gres/gpu|60\nBio|alice|gres/gpu|48\nbio|bob|gres/gpu|12\nbio|bob|cpu|7\n"


def test_users_are_told_and_sums_of_accounts_are_not_counted_again() -> None:
    assert parse_report(TEXT) == {("bio", "alice"): 48, ("bio", "bob"): 12}


@pytest.mark.parametrize("row", ["bio|alice|gres/gpu", "bio|alice|gres/gpu|4.5%", "sreport: error: no"])
def test_a_row_that_is_not_understood_is_an_error_and_never_zero(row: str) -> None:
    with pytest.raises(SlurmUnreadable, match="not understood"):
        parse_report(f"{TEXT}{row}\n")


def test_seconds_are_asked_for_in_utc() -> None:
    tools = Tools(sreport=TEXT)
    reported(tools.runner(), "lab", Window(NOW - timedelta(hours=2), NOW))
    (words,) = tools.commands
    assert {"Seconds", "cluster=lab", "start=2026-10-08T10:00:00", "end=2026-10-08T12:00:00"} <= set(words)
