"""Scheduling passes: does Slurm look at the whole queue, soon enough."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_fairshare.core.doctor.facts import Facts, Source, whole
from slurm_fairshare.core.doctor.finding import ADVICE, ERROR, WARNING, Checks, Fault, Line, slurm_conf

CHECKS = Checks("Scheduling passes")
check = CHECKS.check


@check(
    "scheduler-type",
    ERROR,
    "Is SchedulerType sched/backfill?",
    "Without backfill the first job that does not fit stops all behind it, and unallocated work never fills a gap.",
    Source.CONFIG,
)
def _scheduler_type(facts: Facts) -> Iterable[Fault]:
    found = facts.config.text("SchedulerType")
    if found != "sched/backfill":
        yield Fault(f"SchedulerType is {found or 'not set'}.", slurm_conf("SchedulerType=sched/backfill"))


@check(
    "bf-interval",
    WARNING,
    "Is bf_interval at most 15 seconds?",
    "Half of it is the floor under a small job's wait: with the usual 30 debug jobs cannot start within 30 s.",
    Source.CONFIG,
)
def _bf_interval(facts: Facts) -> Iterable[Fault]:
    found = whole(facts.config.options("SchedulerParameters").get("bf_interval", "")) or 30
    if found > 15:
        yield Fault(
            f"bf_interval is {found} seconds.",
            _parameters(facts, "bf_interval", "10"),
        )


@check(
    "bf-continue",
    WARNING,
    "Is bf_continue set?",
    "Without it backfill starts at the head of the queue again whenever it has lent its locks: on a busy controller it "
    "never reaches the end, where unallocated work stands.",
    Source.CONFIG,
)
def _bf_continue(facts: Facts) -> Iterable[Fault]:
    if "bf_continue" not in facts.config.options("SchedulerParameters"):
        yield Fault(
            "SchedulerParameters lacks bf_continue.",
            _parameters(facts, "bf_continue"),
        )


@check(
    "bf-max-job-test",
    WARNING,
    "Is bf_max_job_test longer than the queue, and 1000 at least?",
    "Backfill looks at so many jobs. Unallocated work stands at the very end: behind a longer queue it is never looked "
    "at, and GPUs stay idle.",
    Source.CONFIG,
    Source.QUEUE,
)
def _bf_max_job_test(facts: Facts) -> Iterable[Fault]:
    default = 100 if facts.release < (22, 5, 0) else 500
    found = whole(facts.config.options("SchedulerParameters").get("bf_max_job_test", "")) or default
    if found < max(1000, facts.queue.pending):
        waiting = f"{facts.queue.pending} jobs wait" if facts.queue.pending != 1 else "1 job waits"
        yield Fault(
            f"bf_max_job_test is {found}, and {waiting}.",
            _parameters(facts, "bf_max_job_test", str(max(3000, 2 * facts.queue.pending))),
            severity=None if found < facts.queue.pending else ADVICE,
        )


@check(
    "bf-per-user-limits",
    WARNING,
    "Are the limits of backfill by user, account and partition unset?",
    "They hide the rest of a team's jobs from backfill however much the team is owed.",
    Source.CONFIG,
)
def _bf_limits(facts: Facts) -> Iterable[Fault]:
    options = facts.config.options("SchedulerParameters")
    for name in ("bf_max_job_user", "bf_max_job_assoc", "bf_max_job_part", "bf_max_job_user_part"):
        if (whole(options.get(name, "")) or 0) > 0:
            yield Fault(
                f"SchedulerParameters holds {name}={options[name]}.",
                slurm_conf(facts.config.without_option("SchedulerParameters", name)),
                subject=name,
            )


@check(
    "repeated-lines",
    WARNING,
    "Does each list in slurm.conf stand on one line?",
    "Slurm takes the last line of a parameter and adds nothing up: what an earlier one says is lost.",
    Source.FILE,
)
def _repeated(facts: Facts) -> Iterable[Fault]:
    for name in ("SchedulerParameters", "JobSubmitPlugins", "AccountingStoreFlags", "AccountingStorageTRES",
                 "AccountingStorageEnforce", "PriorityFlags", "PreemptParameters", "SlurmctldParameters"):  # fmt: skip
        lines = facts.lines.get(name.lower(), ())
        lost = [word for line in lines[:-1] for word in line.split(",") if word not in lines[-1].split(",")]
        if lost:
            joined = ",".join(dict.fromkeys([*lines[-1].split(","), *lost]))
            yield Fault(
                f"{name} stands on {len(lines)} lines; of the earlier ones {', '.join(lost)} is lost.",
                slurm_conf(f"{name}={joined}"),
                subject=name,
            )


def _parameters(facts: Facts, option: str, value: str = "") -> Line:
    return slurm_conf(facts.config.with_option("SchedulerParameters", option, value))
