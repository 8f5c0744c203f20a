"""Demand: what holds GPUs or waits for nothing but room, and what does not count."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.cluster import COMPLETING, SUSPENDED, Job
from slurm_fairshare.core.demand import EVERYBODY, demand
from slurm_fairshare.core.resources import ChargeRule, Resources
from tests.core.build import LADDER, NOW, contract, job, node, picture


def wanted(*jobs: Job, rule: ChargeRule | None = None) -> dict[str, float]:
    return demand(picture([node("n1")], *jobs), LADDER, rule or ChargeRule())


def test_running_and_waiting_contract_jobs_count_by_account_and_together() -> None:
    found = wanted(job(1, "A", 4, nodes=("n1",)), job(2, "a", 8), job(3, "b", 1))
    assert found == {EVERYBODY: 13.0, "a": 12.0, "b": 1.0}


def test_nobody_wanting_anything_is_known_and_not_unknown() -> None:
    assert wanted() == {EVERYBODY: 0.0}


def test_unallocated_work_is_no_demand() -> None:
    assert wanted(job(1, "a", 4, terms=contract(0)), job(2, "a", 2, nodes=("n1",), terms=contract(0))) == {"": 0.0}


def test_a_job_outside_the_ladder_is_no_demand() -> None:
    assert wanted(job(1, "a", 4, qos="normal")) == {"": 0.0}


@pytest.mark.parametrize("state", [SUSPENDED, COMPLETING])
def test_whatever_holds_gpus_counts(state: str) -> None:
    assert wanted(job(1, "a", 4, nodes=("n1",), state=state))["a"] == 4.0


@pytest.mark.parametrize(
    ("reason", "counts"),
    [
        ("Resources", True),
        ("Priority", True),
        ("", True),
        ("ReqNodeNotAvail,_UnavailableNodes:n1", True),
        ("JobHeldUser", False),
        ("JobHeldAdmin", False),
        ("Dependency", False),
        ("BeginTime", False),
        ("QOSMaxGRESPerAccount", False),
        ("AssocGrpGRES", False),
        ("Licenses", False),
    ],
)
def test_a_waiting_job_counts_if_it_only_lacks_room(reason: str, counts: bool) -> None:
    assert ("a" in wanted(job(1, "a", 4, reason=reason))) == counts


def test_a_job_before_its_time_is_not_eligible() -> None:
    early = replace(job(1, "a", 4), eligible=NOW + timedelta(minutes=1))
    assert wanted(early, replace(early, eligible=None)) == {"": 0.0}


@pytest.mark.parametrize(
    ("waiting", "limit", "running", "tasks"),
    [(10, 0, 2, 12), (10, 4, 0, 4), (10, 4, 3, 4), (10, 4, 4, 4), (1, 4, 1, 2)],
)
def test_an_array_wants_what_its_limit_lets_run_at_once(waiting: int, limit: int, running: int, tasks: int) -> None:
    line = job(7, "a", 2, array_size=waiting, array_limit=limit, reason="JobArrayTaskLimit")
    line = replace(line, label="7_[20-29%4]")
    held = [replace(job(100 + n, "a", 2, nodes=("n1",)), label=f"7_{n}") for n in range(running)]
    other = replace(job(8, "a", 1, nodes=("n1",)), label="8_0")
    assert wanted(line, other, *held)["a"] == 2.0 * tasks + 1


def test_demand_is_weighed_as_it_is_charged() -> None:
    half = ChargeRule(weights={"a100": 0.5})
    cheap = replace(job(1, "a", 4), wanted=Resources({"a100": 4}))
    assert wanted(cheap, rule=half)["a"] == 2.0
