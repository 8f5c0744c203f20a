"""What real releases of Slurm printed for one known workload (tests/slurm/record.py), and what is read from it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.plan import Qos
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.core.runs import Run
from slurm_fairshare.slurm.accounting import RowReader, parse_rows
from slurm_fairshare.slurm.nodes import parse_nodes
from slurm_fairshare.slurm.queue import Table, detail_by_node, doubtful, parse_jobs, release_of
from slurm_fairshare.slurm.settings import InDatabase, held_of, parse_access, parse_assoc_mgr, parse_qos
from tests.slurm.record import ACCOUNT, BEHIND, BETWEEN, RECORDED, UNGUESSED

LADDER = Ladder.default()
RELEASES = {"bookworm": (22, 5), "trixie": (24, 11), "sid": (26, 5)}


@dataclass(frozen=True)
class Recorded:
    folder: Path

    def text(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    @property
    def release(self) -> tuple[int, int]:
        return release_of(self.text("version"))

    @property
    def numbers(self) -> dict[str, int]:
        lines = (line.partition("=") for line in self.text("jobs").split())
        return {name: int(number) for name, _, number in lines}

    def job(self, name: str) -> Job:
        (job,) = (job for job in self.jobs() if job.job_id == self.numbers[name])
        return job

    def jobs(self) -> tuple[Job, ...]:
        table = Table(Table.fresh(self.release).columns, BETWEEN, BEHIND)
        excluded = {int(row[0]): row[1] for row in map(str.split, self.text("excluded").split("\n")) if len(row) == 2}
        jobs, rejected = parse_jobs(self.text("squeue"), table, LADDER, excluded)
        assert rejected == ()
        return jobs

    def runs(self, name: str, file: str = "sacct") -> list[Run]:
        return [run for run in self.all_runs(file) if run.label.partition("_")[0] == str(self.numbers[name])]

    def all_runs(self, file: str = "sacct") -> tuple[Run, ...]:
        reader = RowReader(LADDER, ChargeRule(), datetime.now(UTC))
        runs, rejected = parse_rows(self.text(file), reader)
        assert rejected == ()
        return runs


@pytest.fixture(params=RELEASES)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(RECORDED / str(request.param))


def test_each_release_is_the_one_it_is_called(recorded: Recorded) -> None:
    assert recorded.release == RELEASES[recorded.folder.name]


def test_a_hostile_name_is_only_a_name(recorded: Recorded) -> None:
    job = recorded.job("protected")
    assert (job.name, job.account, job.state, job.qos) == (UNGUESSED, ACCOUNT, "RUNNING", "fs-1h")
    assert job.contract == Contract(3600, resumable=True)
    assert job.by_node["n1"].gpus == {"h100": 2}


def test_a_user_with_an_own_priority_is_seen_in_the_job(recorded: Recorded) -> None:
    assert recorded.job("protected").priority >= 300_000 > recorded.job("uneven").priority


def test_nine_gpus_over_two_nodes_are_doubtful_until_the_detail_tells(recorded: Recorded) -> None:
    job = recorded.job("uneven")
    nodes = parse_nodes(recorded.text("nodes"))
    assert (dict(job.by_node), doubtful(recorded.jobs(), nodes)) == ({}, (job,))
    by_node = detail_by_node(recorded.text("detail"), job)
    others: dict[str, int] = {}
    for one in recorded.jobs():
        for name, share in one.by_node.items():
            others[name] = others.get(name, 0) + share.gpu_count
    allocated = {node.name: node.allocated.gpu_count for node in nodes}
    assert {name: share.gpu_count + others.get(name, 0) for name, share in by_node.items()} == allocated


def test_a_picky_job_says_what_it_wants(recorded: Recorded) -> None:
    job = recorded.job("picky")
    assert {"exclusive=node", "excluded_nodes=n2"} <= set(job.constraints)
    assert (job.pending, job.reason, job.requeueable, job.start) == (True, "BeginTime", False, None)
    assert (job.wanted.gpu_count, job.node_count) == (8, 1)


def test_a_held_job_depends_on_another(recorded: Recorded) -> None:
    job = recorded.job("held")
    assert (job.reason, job.priority, job.eligible) == ("JobHeldUser", 0, None)
    assert any(word.startswith("dependency=afterany:") for word in job.constraints)


def test_a_heterogeneous_job_is_two_jobs_with_one_leader(recorded: Recorded) -> None:
    leader = recorded.numbers["het"]
    jobs = [job for job in recorded.jobs() if job.het_leader == leader]
    assert sorted(job.label for job in jobs) == [f"{leader}+0", f"{leader}+1"]
    runs = [run for run in recorded.all_runs() if run.job_id in {job.job_id for job in jobs}]
    assert [(run.start, run.milli_gpus) for run in runs] == [(None, 0)] * 2  # 26.05 does not label them 7+0, 7+1 yet


def test_tasks_of_an_array_are_jobs_of_their_own(recorded: Recorded) -> None:
    array = recorded.numbers["array"]
    jobs = [job for job in recorded.jobs() if job.label.startswith(f"{array}_")]
    assert sum(job.array_size for job in jobs) == 4
    assert sum(job.state == "RUNNING" for job in jobs) == 2
    requeued = [job for job in jobs if job.label == f"{array}_1"]
    # squeue folds a requeued task into the line of the waiting ones, if there is such a line at that moment.
    assert [job.restarts for job in requeued] in ([], [1])


def test_a_requeued_task_keeps_its_first_attempt(recorded: Recorded) -> None:
    attempts = [run for run in recorded.runs("array") if run.label.endswith("_1")]
    ended = [run for run in attempts if run.end is not None]
    assert [(run.state, run.milli_gpus) for run in ended] == [("REQUEUED", 2000)]
    assert all(run.start is None for run in attempts if run.end is None)


def test_keys_are_slurms_own_numbers_and_none_twice(recorded: Recorded) -> None:
    runs = recorded.all_runs()
    assert all(run.key.isdigit() for run in runs)
    assert len({run.key for run in runs}) == len(runs)


def test_a_running_run_has_no_end_and_its_rung_stands_for_its_contract(recorded: Recorded) -> None:
    (run,) = recorded.runs("protected")
    assert (run.state, run.end, run.held.gpus, run.charged) == ("RUNNING", None, {"h100": 2}, True)
    assert run.contract is not None
    assert run.contract.min_runtime == 3600


def test_an_ended_run_has_its_contract_and_a_note_of_two_lines_breaks_nothing(recorded: Recorded) -> None:
    (run,) = recorded.runs("protected", "sacct-later")
    assert (run.state, run.contract) == ("CANCELLED", Contract(3600, resumable=True))
    assert run.end is not None
    assert len(recorded.runs("uneven", "sacct-later")) == 1


def test_a_cancelled_run_counts_what_it_ran(recorded: Recorded) -> None:
    (run,) = recorded.runs("ended")
    assert (run.state, run.held.gpu_count, run.charged) == ("CANCELLED", 1, False)
    assert run.start is not None
    assert run.end is not None
    assert run.end > run.start


def test_nodes_have_what_they_have(recorded: Recorded) -> None:
    nodes = {node.name: node for node in parse_nodes(recorded.text("nodes"))}
    assert {name: node.total.gpus for name, node in nodes.items()} == {"n1": {"h100": 8}, "n2": {"h100": 8}}
    assert all(node.in_service and node.total.memory_mb == 128_000 for node in nodes.values())


def test_settings_are_what_was_set(recorded: Recorded) -> None:
    memory = parse_assoc_mgr(recorded.text("assoc_mgr"))
    held = held_of(memory, InDatabase(parse_qos(recorded.text("qos")), parse_access(recorded.text("access"))))
    assert held.qos["fs-1h"] == Qos(
        "fs-1h",
        grace=3600,
        exempt=3600,
        preempts=frozenset({"fs-unallocated"}),
        flags=frozenset({"DenyOnLimit"}),
        max_tres_per_job="gres/gpu=8",
        max_tres_per_account="gres/gpu=12",
    )
    account = held.account(ACCOUNT)
    assert account is not None
    assert (account.priority, account.default_qos) == (300_000, "fs-unallocated")
    assert {rung.name for rung in LADDER.rungs} <= account.qos
    priorities = {a.user: a.priority for a in held.associations if a.account == ACCOUNT and a.user}
    assert priorities == {"alice": 300_000, "bob": 7}
    assert held.account("root").priority is None  # type: ignore[union-attr]
