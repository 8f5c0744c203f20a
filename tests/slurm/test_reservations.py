"""Bookings: which words Slurm's tools are given, so that no job dies of its guard, and what is read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from slurm_fairshare.core.booking import Booking, Kind
from slurm_fairshare.errors import SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm.run import Answer
from tests.slurm.fake import said
from tests.slurm.test_cli import Site
from tests.slurm.test_errands import commands
from tests.slurm.test_queue import PENDING

AT = datetime(2026, 11, 30, 1, 0, tzinfo=UTC)
GUARD = Booking(Kind.GUARD, 7, "alice", ("n1", "n2"), AT)
PLAN = Booking(Kind.PLAN, 7, "alice", ("n1", "n2"), AT)
EPOCH = int(AT.timestamp())
OURS = (
    f"ReservationName=fs-job-7 StartTime={EPOCH} EndTime={EPOCH + 31_536_000} Duration=365-00:00:00 Nodes=n[1-2] "
    "NodeCnt=2 CoreCnt=128 Features=(null) PartitionName=(null) Flags=IGNORE_JOBS,SPEC_NODES TRES=cpu=128 Users=alice "
    "Groups=(null) Accounts=(null) Licenses=(null) State=ACTIVE BurstBuffer=(null) MaxStartDelay=(null)"
)
THEIRS = OURS.replace("fs-job-7", "course")


def waiting(**more: str) -> Site:
    return Site(PENDING | {"JobID": "7", "JobArrayID": "7"} | more)


def test_a_guard_has_no_end_holds_nobody_when_it_goes_and_is_forgotten_without_a_daemon() -> None:
    site = waiting()
    site.slurm.book(GUARD)
    flags = "Flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER,PURGE_COMP=00:05:00"
    assert commands(site, "scontrol") == [
        ["create", "reservation", "ReservationName=fs-job-7", "Nodes=n1,n2", "StartTime=now", "Duration=UNLIMITED",
         "Users=alice", flags],
        ["update", "JobId=7", "ReservationName=fs-job-7"],
    ]  # fmt: skip


def test_nobody_can_run_in_a_plan_so_nobody_dies_when_it_ends() -> None:
    site = waiting()
    site.slurm.book(PLAN)
    assert commands(site, "scontrol") == [
        ["create", "reservation", "ReservationName=fs-job-7", "Nodes=n1,n2", f"StartTime=uts{EPOCH}", "Duration=10",
         "Users=root", "Flags=IGNORE_JOBS"],
    ]  # fmt: skip


def test_a_plan_becomes_a_guard_by_a_change_so_that_nobody_slips_in_between() -> None:
    flags = "Flags=IGNORE_JOBS,NO_HOLD_JOBS_AFTER,PURGE_COMP=00:05:00"
    for late, start in ((0, ()), (-60, ("StartTime=now",))):
        site = waiting()
        site.slurm.book(Booking(Kind.GUARD, 7, "alice", ("n1", "n2"), AT + timedelta(seconds=late)), PLAN)
        assert commands(site, "scontrol") == [
            ["update", "ReservationName=fs-job-7", *start, "Duration=UNLIMITED", "Users=alice", flags],
            ["update", "JobId=7", "ReservationName=fs-job-7"],
        ]


def test_a_guard_that_the_job_may_not_enter_is_taken_away_again() -> None:
    site = waiting()

    def refuse(words: list[str]) -> Answer:
        return said("Access/permission denied") if "update" in words else Answer(0, "", "")

    site.tools._replies["scontrol"] = [refuse]
    with pytest.raises(SlurmRefused, match="Operator"):
        site.slurm.book(GUARD)
    assert commands(site, "scontrol")[-1] == ["delete", "ReservationName=fs-job-7"]


def test_a_job_is_taken_out_before_its_guard_goes_waiting_or_running() -> None:
    for site in (waiting(Reservation="fs-job-7"), Site({"JobID": "7", "Reservation": "fs-job-7"})):
        site.slurm.unbook(GUARD)
        assert commands(site, "scontrol") == [
            ["update", "JobId=7", "ReservationName="],
            ["delete", "ReservationName=fs-job-7"],
        ]


def test_a_job_that_somebody_put_elsewhere_stays_there() -> None:
    site = waiting(Reservation="course")
    site.slurm.unbook(GUARD)
    assert commands(site, "scontrol") == [["delete", "ReservationName=fs-job-7"]]


def test_what_is_gone_already_is_no_error_and_what_is_in_use_is() -> None:
    site = Site()
    site.tools._replies["scontrol"] = [said("delete_reservation ReservationName=x: Requested reservation is invalid")]
    site.slurm.unbook(GUARD)
    site.tools._replies["scontrol"] = [said("delete_reservation ReservationName=x: Requested reservation is in use")]
    with pytest.raises(SlurmRefused):
        site.slurm.unbook(GUARD)


def test_only_our_reservations_are_read() -> None:
    site = Site()
    site.detail = f"{THEIRS}\n{OURS}\n"
    assert site.slurm.bookings() == (GUARD,)
    site.detail = OURS.replace("Users=alice", "Users=root")
    assert site.slurm.bookings() == (Booking(Kind.PLAN, 7, "root", ("n1", "n2"), AT),)
    site.detail = "No reservations in the system"
    assert site.slurm.bookings() == ()
    for odd in ("fs-job-", "fs-job-7x", "fs-jobs-7", "xfs-job-7", "fs-job--7"):
        site.detail = OURS.replace("fs-job-7", odd)
        assert site.slurm.bookings() == ()


def test_one_of_ours_that_cannot_be_read_is_an_error() -> None:
    site = Site()
    site.detail = OURS.replace(f"StartTime={EPOCH}", "StartTime=soon")
    with pytest.raises(SlurmUnreadable, match="show reservation"):
        site.slurm.bookings()


def test_a_plan_ends_soon_after_its_moment() -> None:
    """Where the daemon has gone, the nodes are not lost for long."""
    site = waiting()
    site.slurm.book(Booking(Kind.PLAN, 7, "alice", ("n1",), AT + timedelta(hours=1)))
    assert "Duration=10" in commands(site, "scontrol")[0]
