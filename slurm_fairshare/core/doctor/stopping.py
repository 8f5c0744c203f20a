"""Who may be stopped, and what becomes of it: preemption, requeue, grace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from slurm_fairshare.core.doctor.facts import Facts, Source, whole
from slurm_fairshare.core.doctor.finding import ADVICE, ERROR, WARNING, Checks, Fault, slurm_conf

CRED_EXPIRE: Final = 120
"""Seconds a requeued job waits where nothing else is set."""

COUNTS_GRACEFUL_ENDS: Final = (24, 5, 0)
HAS_REQUEUE_DELAY: Final = (25, 11, 0)
HAS_PARAMETERS_LINE: Final = (23, 2, 0)
EXEMPT_TIME_WITH_GANG: Final = (26, 5, 0)

CHECKS = Checks("Who may be stopped")
check = CHECKS.check


@check(
    "preempt-type",
    ERROR,
    "Is PreemptType preempt/qos?",
    "The ladder is made of QOS: without preempt/qos no minimum runtime protects, and unallocated work never yields.",
    Source.CONFIG,
)
def _preempt_type(facts: Facts) -> Iterable[Fault]:
    found = facts.config.text("PreemptType")
    if found != "preempt/qos":
        yield Fault(f"PreemptType is {found or 'not set'}.", slurm_conf("PreemptType=preempt/qos"))


@check(
    "preempt-mode",
    ERROR,
    "Is PreemptMode REQUEUE, and nothing else?",
    "OFF: unallocated work never yields. CANCEL kills what could run again. SUSPEND keeps the GPUs' memory taken. "
    "GANG, WITHIN and PRIORITY let jobs stop each other by rules that know no budget.",
    Source.CONFIG,
)
def _preempt_mode(facts: Facts) -> Iterable[Fault]:
    found = facts.config.words("PreemptMode")
    if found != {"requeue"}:
        shown = facts.config.text("PreemptMode") or "OFF"
        yield Fault(f"PreemptMode is {shown}.", slurm_conf("PreemptMode=REQUEUE"))


@check(
    "gang-without-exempt-time",
    ERROR,
    "Is preempt/partition_prio not combined with SUSPEND,GANG before Slurm 26.05?",
    "That combination ignores PreemptExemptTime before 26.05: runs under contract are suspended at once.",
    Source.CONFIG,
)
def _gang(facts: Facts) -> Iterable[Fault]:
    by_partition = facts.config.text("PreemptType") == "preempt/partition_prio"
    suspends = facts.config.words("PreemptMode") >= {"suspend", "gang"}
    if by_partition and suspends and facts.release < EXEMPT_TIME_WITH_GANG:
        yield Fault(
            "PreemptType is preempt/partition_prio with PreemptMode SUSPEND,GANG.",
            slurm_conf("PreemptType=preempt/qos\nPreemptMode=REQUEUE"),
        )


@check(
    "job-requeue",
    ERROR,
    "Is JobRequeue 1?",
    "With 0 a job that does not ask for --requeue is killed when it is preempted, instead of going back to the queue.",
    Source.CONFIG,
)
def _job_requeue(facts: Facts) -> Iterable[Fault]:
    if facts.config.number("JobRequeue") != 1:
        yield Fault("JobRequeue is 0.", slurm_conf("JobRequeue=1"))


@check(
    "kill-wait",
    WARNING,
    "Is KillWait at most 30 seconds (10 with a debug lane)?",
    "Every handover of GPUs takes this long where a job ignores SIGTERM. A job that needs longer to save asks for a "
    "notice in its contract.",
    Source.CONFIG,
)
def _kill_wait(facts: Facts) -> Iterable[Fault]:
    found = facts.config.number("KillWait") or 0
    if found > 30 or (found > 10 and facts.wanted.lane is not None):
        line = slurm_conf("KillWait=10")
        yield Fault(f"KillWait is {found} seconds.", line, severity=None if found > 30 else ADVICE)


@check(
    "max-batch-requeue",
    WARNING,
    "From Slurm 24.05 on: is MaxBatchRequeue 1000 or more?",
    "A job that saves its work and exits while it is being stopped is counted; after MaxBatchRequeue of those (5 where "
    "nothing is set) Slurm holds it until an administrator comes.",
    Source.CONFIG,
)
def _max_batch_requeue(facts: Facts) -> Iterable[Fault]:
    found = facts.config.number("MaxBatchRequeue")
    if facts.release >= COUNTS_GRACEFUL_ENDS and (found is None or found < 1000):
        yield Fault(f"MaxBatchRequeue is {found if found is not None else 5}.", slurm_conf("MaxBatchRequeue=1000000"))


@check(
    "requeue-delay",
    ADVICE,
    "From Slurm 25.11 on: is requeue_delay at most 30 seconds?",
    "A stopped job waits this long (120 s where nothing is set) before it may start again, even where GPUs are free.",
    Source.CONFIG,
)
def _requeue_delay(facts: Facts) -> Iterable[Fault]:
    parameters = facts.config.options("SchedulerParameters")
    lifetime = facts.config.options("AuthInfo").get("cred_expire", "")
    waits = whole(parameters.get("requeue_delay", "") or lifetime)
    waits = CRED_EXPIRE if waits is None else waits
    if facts.release >= HAS_REQUEUE_DELAY and waits > 30:
        yield Fault(
            f"A stopped job waits {waits} seconds before it may start again.",
            slurm_conf(facts.config.with_option("SchedulerParameters", "requeue_delay", "10")),
        )


@check(
    "expedited-requeue",
    WARNING,
    "Is enable_expedited_requeue off?",
    "A job that asks for --requeue=expedite sorts above everything after it was stopped, whatever its team is owed, "
    "and may be held while it is being preempted.",
    Source.CONFIG,
)
def _expedited(facts: Facts) -> Iterable[Fault]:
    if "enable_expedited_requeue" in facts.config.options("SlurmctldParameters"):
        yield Fault(
            "SlurmctldParameters holds enable_expedited_requeue.",
            slurm_conf(facts.config.without_option("SlurmctldParameters", "enable_expedited_requeue")),
        )


@check(
    "min-exempt-priority",
    ERROR,
    "Is min_exempt_priority unset in PreemptParameters?",
    "Unallocated jobs carry their team's label: those above this priority would never yield. Where it is not the last "
    "word of the line, slurmctld dies of it before 24.11.7, 25.05.5 and 25.11.1.",
    Source.CONFIG,
)
def _min_exempt_priority(facts: Facts) -> Iterable[Fault]:
    found = facts.config.options("PreemptParameters").get("min_exempt_priority")
    if found is not None:
        yield Fault(
            f"PreemptParameters holds min_exempt_priority={found}.",
            slurm_conf(facts.config.without_option("PreemptParameters", "min_exempt_priority")),
        )


@check(
    "youngest-first",
    ADVICE,
    "Is the youngest unallocated job stopped first?",
    "Otherwise Slurm stops the smallest first, whatever work it has done; the youngest loses least.",
    Source.CONFIG,
)
def _youngest_first(facts: Facts) -> Iterable[Fault]:
    new = "youngest_first" in facts.config.options("PreemptParameters")
    old = "preempt_youngest_first" in facts.config.options("SchedulerParameters")
    if not new and not old:
        line = "PreemptParameters=youngest_first"
        if facts.release < HAS_PARAMETERS_LINE:
            line = facts.config.with_option("SchedulerParameters", "preempt_youngest_first")
        yield Fault("Neither PreemptParameters nor SchedulerParameters asks for youngest_first.", slurm_conf(line))


@check(
    "global-exempt-time",
    ERROR,
    "Is slurm.conf's PreemptExemptTime 0?",
    "It protects every job whose QOS sets none, and unallocated ones where that rung's is unset: free work would "
    "hold GPUs against those who pay.",
    Source.CONFIG,
    Source.QOS,
)
def _global_exempt_time(facts: Facts) -> Iterable[Fault]:
    found = facts.config.seconds("PreemptExemptTime") or 0
    if found > 0:
        below = facts.qos.get(facts.wanted.ladder.unallocated.name)
        reaches = below is None or below.exempt is None
        shown = facts.config.text("PreemptExemptTime")
        line = slurm_conf("PreemptExemptTime=0")
        yield Fault(f"PreemptExemptTime is {shown}.", line, severity=None if reaches else ADVICE)
