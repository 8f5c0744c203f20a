"""usage, audit and adjust, as typed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.store.memory import MemoryStore
from tests.cli.conftest import START, Site


def run(key: str, start: float, end: float | None, **values: object) -> Run:
    """A run of nlp's dan with two GPUs, from hour to hour after six in the morning."""
    plain = Run(
        cluster="lab",
        key=key,
        job_id=int(key),
        label=key,
        account="nlp",
        user="dan",
        uid=2002,
        partition="gpu",
        qos="fs-1h",
        state="COMPLETED" if end is not None else "RUNNING",
        submit=START + timedelta(hours=start),
        eligible=START + timedelta(hours=start),
        start=START + timedelta(hours=start),
        end=None if end is None else START + timedelta(hours=end),
        held=Resources({"h100": 2}, 2, 2000),
        milli_gpus=2000,
        charged=True,
        contract=Contract(3600),
        nodes="n1",
    )
    return replace(plain, **values)  # type: ignore[arg-type]


@pytest.fixture
def used(site: Site) -> Site:
    """Four runs over five hours, and a tick behind them."""
    for one in (
        run("1", 0.5, 2.5),
        run("2", 1, 2, user="erin", held=Resources({"a100": 1, "h100": 1})),
        run("3", 1, 3, charged=False, qos="fs-unallocated"),
        run("4", 2, 3, account="vision", user="alice"),
    ):
        site.slurm.add_run(one)
    site.load()
    site.after(hours=5)
    site.says("tick")
    return site


def rows(site: Site, *words: str) -> list[tuple[str, ...]]:
    return [tuple(line.split("|")) for line in site.says("usage", "-P", "-n", *words).splitlines()]


# --- usage ----------------------------------------------------------------------------------------


def test_usage_is_by_account_and_tells_charged_and_unallocated_apart(used: Site) -> None:
    assert rows(used, "-o", "Account,Charged,Unallocated,Runs") == [
        ("nlp", "6.000000", "4.000000", "3"),
        ("vision", "2.000000", "0.000000", "1"),
    ]


def test_usage_may_be_taken_apart_by_user_type_qos_and_hour(used: Site) -> None:
    assert rows(used, "--by", "user", "-o", "User,Charged") == [
        ("alice", "2.000000"),
        ("dan", "4.000000"),
        ("erin", "2.000000"),
    ]
    assert rows(used, "--by", "type", "-o", "Type,Charged") == [("a100", "1.000000"), ("h100", "7.000000")]
    assert rows(used, "--by", "qos", "-o", "QOS,Charged,Unallocated") == [
        ("fs-1h", "8.000000", "0.000000"),
        ("fs-unallocated", "0.000000", "4.000000"),
    ]
    assert rows(used, "--by", "hour,account", "-A", "NLP", "-u", "dan", "-o", "Begins,Charged") == [
        ("2026-10-08T06:00:00+00:00", "1.000000"),
        ("2026-10-08T07:00:00+00:00", "2.000000"),
        ("2026-10-08T08:00:00+00:00", "1.000000"),
    ]


def test_the_header_says_which_window_and_zone_to_the_second(used: Site) -> None:
    first, second = used.says("usage", "--since", "2026-10-08T07:00Z").splitlines()[:2]
    assert first == "Window 2026-10-08T07:00:00Z to 2026-10-08T11:00:00Z (4h, UTC)."
    assert second == (
        "Accounting was read up to 2026-10-08T11:00:00Z, 0s ago; what runs counts up to the window's end."
    )


def test_the_sites_zone_cuts_days_and_stands_in_the_header(used: Site) -> None:
    used.config = Config(cluster="lab", time_zone="Pacific/Auckland")
    assert [row[0] for row in rows(used, "--by", "day", "-o", "Begins")] == ["2026-10-08T00:00:00+13:00"]
    assert "Pacific/Auckland: 2026-10-02T00:00:00+13:00" in used.says("usage", "--since", "2026-10-02")


def test_a_run_over_the_months_border_lands_in_both(used: Site) -> None:
    border = (START.replace(month=11, day=1, hour=0) - START) / timedelta(hours=1)
    used.slurm.add_run(run("9", border - 1 / 3600, border + 1 / 3600))
    used.after(days=25)
    used.says("tick")
    months = rows(used, "--by", "month", "--since", "2026-10-20", "-o", "Begins,Charged")
    assert months == [
        ("2026-10-20T00:00:00+00:00", f"{2 / 3600:.6f}"),
        ("2026-11-01T00:00:00+00:00", f"{2 / 3600:.6f}"),
    ]


def test_what_runs_counts_up_to_now_and_json_is_exact(used: Site) -> None:
    job = used.slurm.submit("vision", "alice", 3, contract=Contract(3600))
    used.slurm.start(job)
    used.after(minutes=30)
    used.says("tick")
    told = json.loads(used.says("usage", "--since", "1h", "--json"))
    assert told["charged_gpu_seconds"] == 3 * 1800
    assert told["window_end"] == "2026-10-08T11:30:00Z"
    assert [row["charged"] for row in told["usage"]] == [1.5]


def test_weights_change_what_is_paid_and_never_the_gpu_hours(used: Site) -> None:
    used.config = Config(cluster="lab", fairshare={"gpu_weights": {"a100": 0.5}})
    used.store = MemoryStore("lab", used.config.charge_rule, used.config.ladder)
    used.store.record_runs(replace_prices(used), used.slurm.now)
    assert rows(used, "--by", "user", "-o", "User,Charged,Paid", "-u", "erin") == [("erin", "2.000000", "1.500000")]
    assert rows(used, "--by", "type", "-o", "Type,Charged,Paid") == [
        ("a100", "1.000000", "0.500000"),
        ("h100", "7.000000", "7.000000"),
    ]


def replace_prices(site: Site) -> object:
    from slurm_fairshare.core.records import Batch
    from slurm_fairshare.core.window import Window

    window = Window(START - timedelta(days=1), site.slurm.now)
    rule = site.config.charge_rule
    runs = tuple(replace(one, milli_gpus=rule.milli_gpus(one.held)) for one in site.slurm.runs(window).runs)
    return Batch(window, runs)


@pytest.mark.parametrize("by", ["colour", "day,month"])
def test_what_usage_cannot_be_taken_apart_by_is_said(used: Site, by: str) -> None:
    assert "--by" in used.run("usage", "--by", by).stderr


# --- audit ----------------------------------------------------------------------------------------


def test_an_audit_of_a_sound_ledger_finds_nothing_and_ends_with_0(used: Site) -> None:
    assert "No difference. 4 runs of 2 accounts" in used.says("audit", "--sreport")


def test_an_audit_ends_with_1_and_tells_each_difference_with_its_cause(used: Site) -> None:
    used.slurm.add_run(run("1", 0.5, 3))
    used.slurm.add_run(run("8", 3, 4, account="vision", user="alice"))
    result = used.run("audit", "-P")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split("|")[:2] for line in lines[1:]] == [["seconds", "1"], ["run", "8"]]
    assert "audit --repair" in lines[1]


def test_an_audit_may_be_of_one_account(used: Site) -> None:
    used.slurm.add_run(run("8", 3, 4, account="vision", user="alice"))
    assert used.run("audit", "-A", "nlp").exit_code == 0
    assert used.run("audit", "-A", "Vision").exit_code == 1


def test_repair_takes_over_what_slurmdbd_has(used: Site) -> None:
    used.slurm.add_run(run("1", 0.5, 3))
    assert used.run("audit", "--repair").exit_code == 0
    assert rows(used, "-u", "dan", "-o", "Charged") == [("5.000000",)]


def test_what_has_not_been_read_yet_is_not_compared(used: Site) -> None:
    used.after(hours=1)
    result = used.run("audit")
    assert result.exit_code == 0
    assert "compared up to 2026-10-08T11:00:00Z, when accounting was last read" in result.stderr


def test_before_the_first_poll_there_is_nothing_to_audit(site: Site) -> None:
    assert "run `slurm-fairshare tick`" in site.refuses(1, "audit")


# --- adjust ---------------------------------------------------------------------------------------


def test_a_credit_takes_from_usage_and_is_told_in_words(used: Site) -> None:
    said = used.says("adjust", "nlp", "-2.5h", "--reason", "the switch failed", "--expires", "30d")
    assert said == ("Credited nlp with 2.50 GPU-hours: its usage counts that much less, up to 2026-11-07T11:00:00Z.\n")
    used.after(minutes=1)
    assert rows(used, "-o", "Account,Charged,Adjusted")[0] == ("nlp", "6.000000", "-2.500000")
    listed = json.loads(used.says("adjust", "--list", "--json"))["adjustments"]
    assert [(one["account"], one["gpuh"], one["reason"]) for one in listed] == [("nlp", -2.5, "the switch failed")]
    assert listed[0]["author"]


def test_a_debit_adds_to_usage(used: Site) -> None:
    assert "Debited vision 10.00 GPU-hours" in used.says("adjust", "vision", "+10h", "--reason", "ran outside Slurm")
    used.after(minutes=1)
    used.says("tick")
    last = used.store.last_ranking()
    assert last is not None
    leaf = last[1].leaf("vision")
    assert leaf is not None
    assert leaf.standing.usage >= 10 * 3600


def test_an_account_outside_the_tree_is_asked_about(used: Site) -> None:
    result = used.run("adjust", "vison", "+1h", "--reason", "x")
    assert result.exit_code == 0
    assert "vison is no account of the budget tree" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("adjust", "nlp", "10h", "--reason", "x"),
        ("adjust", "nlp", "+10", "--reason", "x"),
        ("adjust", "nlp", "+0h", "--reason", "x"),
        ("adjust", "nlp", "+10h"),
        ("adjust", "nlp", "+10h", "--reason", " "),
        ("adjust", "nlp"),
        ("adjust", "nlp", "+10h", "--reason", "x", "--expires", "2020-01-01"),
    ],
)
def test_an_adjustment_without_sign_unit_or_reason_is_refused(used: Site, words: tuple[str, ...]) -> None:
    assert used.run(*words).exit_code == 2
    assert used.says("adjust", "--list").endswith("No adjustment was made in this time.\n")
