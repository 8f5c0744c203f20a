"""The QOS: does each rung protect for its minimum runtime, and does nothing around it take that away."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from slurm_fairshare.core.contract import Rung, spell
from slurm_fairshare.core.doctor.facts import Facts, HeldQos, Source
from slurm_fairshare.core.doctor.finding import (
    ADVICE,
    ERROR,
    WARNING,
    Checks,
    Fault,
    settings,
    shell,
    slurm_conf,
    some,
)
from slurm_fairshare.core.plan import desired_qos

APPLY: Final = shell("slurm-fairshare apply")

CHECKS = Checks("The ladder")
check = CHECKS.check


def _rungs(facts: Facts) -> Iterator[tuple[Rung, HeldQos]]:
    """The rungs that slurmdbd has."""
    for rung in facts.wanted.ladder.rungs:
        if rung.name in facts.qos:
            yield rung, facts.qos[rung.name]


def _others(facts: Facts) -> Iterator[HeldQos]:
    """Every QOS that is no rung, by name."""
    for name in sorted(facts.qos):
        if facts.wanted.ladder.rung(name) is None:
            yield facts.qos[name]


def _modify(name: str, value: str) -> str:
    return f"sacctmgr modify qos where name={name} set {value}"


@check(
    "rung-missing",
    ERROR,
    "Is there a QOS for each rung?",
    "A job that belongs on a rung that does not exist is refused at submit.",
    Source.QOS,
)
def _missing(facts: Facts) -> Iterable[Fault]:
    lacks = [rung.name for rung in facts.wanted.ladder.rungs if rung.name not in facts.qos]
    if lacks:
        yield Fault(f"There is no QOS {', '.join(lacks)}.", APPLY)


@check(
    "rung-protection",
    ERROR,
    "Does each rung protect for its minimum runtime, in PreemptExemptTime and in GraceTime?",
    "PreemptExemptTime is the promise; GraceTime is the floor under it for whatever QOS a site puts above the ladder. "
    "Less than the minimum runtime breaks the contract; on the unallocated rung more holds GPUs that nobody pays for.",
    Source.QOS,
)
def _protection(facts: Facts) -> Iterable[Fault]:
    for rung, has in _rungs(facts):
        for name, value in (("PreemptExemptTime", has.exempt), ("GraceTime", has.grace)):
            if (value or 0) != rung.min_runtime:
                shown = "not set" if value is None else spell(value)
                wrong = f"QOS {rung.name} has {name} {shown} instead of {spell(rung.min_runtime)}."
                yield Fault(wrong, APPLY, subject=f"QOS {rung.name}")


@check(
    "rung-preempts",
    ERROR,
    "May each rung preempt unallocated, and nothing else?",
    "A rung that may preempt another stops runs by a rule that knows no budget; one that may not preempt unallocated "
    "waits behind work nobody pays for.",
    Source.QOS,
)
def _preempts(facts: Facts) -> Iterable[Fault]:
    below = facts.wanted.ladder.unallocated
    for rung, has in _rungs(facts):
        wanted = frozenset() if rung == below else frozenset({below.name})
        more, less = sorted(has.preempts - wanted), sorted(wanted - has.preempts)
        if more:
            yield Fault(f"QOS {rung.name} may preempt {', '.join(more)}.", APPLY, subject=f"QOS {rung.name}")
        if less:
            yield Fault(f"QOS {rung.name} may not preempt {below.name}.", APPLY, subject=f"QOS {rung.name}")


@check(
    "rung-differs",
    WARNING,
    "Are priority, limits and flags of each rung as `apply` sets them?",
    "The debug lane is made of these: without the priority it is not first, without the limits it has no bounds.",
    Source.HELD,
)
def _differs(facts: Facts) -> Iterable[Fault]:
    for wanted in desired_qos(facts.wanted.ladder, facts.wanted.lane):
        has = facts.held.qos.get(wanted.name)
        if has is None:
            continue
        pairs = (
            ("Priority", has.priority, wanted.priority),
            ("MaxTRESPerJob", has.max_tres_per_job, wanted.max_tres_per_job),
            ("MaxTRESPerAccount", has.max_tres_per_account, wanted.max_tres_per_account),
            ("Flags", ",".join(sorted(has.flags)), ",".join(sorted(wanted.flags))),
        )
        differ = [
            f"{name} {is_ or 'none'} instead of {should or 'none'}" for name, is_, should in pairs if is_ != should
        ]
        if differ:
            yield Fault(f"QOS {wanted.name} has {', '.join(differ)}.", APPLY, subject=f"QOS {wanted.name}")


@check(
    "over-part-qos",
    WARNING,
    "Does no rung have the flag OverPartQOS?",
    "It turns around whose limits and times count, the partition's QOS or the job's: a site that relies on its "
    "partition's limits loses them for jobs under contract.",
    Source.QOS,
)
def _over_part_qos(facts: Facts) -> Iterable[Fault]:
    for rung, has in _rungs(facts):
        if "overpartqos" in has.flags:
            line = shell(_modify(rung.name, "Flags-=OverPartQOS"))
            yield Fault(f"QOS {rung.name} has the flag OverPartQOS.", line, subject=f"QOS {rung.name}")


@check(
    "rung-mode",
    ERROR,
    "Have the rungs no PreemptMode of their own, other than REQUEUE?",
    "It goes before the cluster's: CANCEL kills jobs that could run again, WITHIN lets the jobs of one rung stop each "
    "other by priority.",
    Source.QOS,
)
def _rung_mode(facts: Facts) -> Iterable[Fault]:
    for rung, has in _rungs(facts):
        if has.modes - {"cluster", "off", "requeue"}:
            shown = ",".join(sorted(has.modes)).upper()
            line = shell(_modify(rung.name, "PreemptMode=cluster"))
            yield Fault(f"QOS {rung.name} has PreemptMode {shown}.", line, subject=f"QOS {rung.name}")


@check(
    "qos-mode",
    WARNING,
    "Has no other QOS a PreemptMode that Slurm cannot carry out?",
    "WITHIN or PRIORITY alone says how to compare, not what to do: Slurm finds no mode, and the job can never be "
    "removed. SUSPEND on a QOS acts as CANCEL unless the cluster's mode holds GANG.",
    Source.QOS,
    Source.CONFIG,
)
def _mode(facts: Facts) -> Iterable[Fault]:
    gang = "gang" in facts.config.words("PreemptMode")
    for one in _others(facts):
        shown = ",".join(sorted(one.modes)).upper()
        if one.modes and one.modes <= {"within", "priority"}:
            line = shell(_modify(one.name, f"PreemptMode=requeue,{shown.lower()}"))
            yield Fault(f"QOS {one.name} has PreemptMode {shown} alone.", line, subject=f"QOS {one.name}")
        if "suspend" in one.modes and not gang:
            line = shell(_modify(one.name, "PreemptMode=requeue"))
            yield Fault(f"QOS {one.name} has PreemptMode {shown}.", line, subject=f"QOS {one.name}")


@check(
    "foreign-preempts-rung",
    WARNING,
    "Does no QOS outside the ladder list a charged rung in Preempt?",
    "Its jobs may stop runs under contract. They keep their minimum runtime (GraceTime sees to that), but past it they "
    "yield to a QOS instead of to a team that is owed more; nothing of it is recorded or shown.",
    Source.QOS,
)
def _foreign(facts: Facts) -> Iterable[Fault]:
    charged = {rung.name for rung in facts.wanted.ladder.charged}
    for one in _others(facts):
        listed = sorted(one.preempts & charged)
        if listed and not _retired(facts, one.name):
            line = shell(_modify(one.name, f"Preempt-={','.join(listed)}"))
            yield Fault(f"QOS {one.name} may preempt {', '.join(listed)}.", line, subject=f"QOS {one.name}")


def _retired(facts: Facts, name: str) -> bool:
    return name.startswith(facts.wanted.prefix)


@check(
    "rung-retired",
    WARNING,
    "Is every QOS with our prefix a rung of the settings?",
    "A rung that the settings no longer have is paid by nobody, and its runs are protected all the same.",
    Source.QOS,
    Source.QUEUE,
)
def _rung_retired(facts: Facts) -> Iterable[Fault]:
    for one in _others(facts):
        if not _retired(facts, one.name):
            continue
        jobs = facts.queue.by_qos.get(one.name, 0)
        lists = [name for name, other in sorted(facts.qos.items()) if one.name in other.preempts]
        used = f" {jobs} {'job is' if jobs == 1 else 'jobs are'} still in it: apply removes it when they have left."
        listed = f" It stands in the Preempt list of {some(lists)}." if lists else ""
        yield Fault(
            f"QOS {one.name} is no rung of the settings.{listed}{used if jobs else ''}",
            APPLY,
            subject=f"QOS {one.name}",
            severity=ADVICE if jobs and not lists else None,
        )


@check(
    "prefix-case",
    ERROR,
    "Is contract.qos_prefix written in lower case?",
    "slurmdbd keeps QOS names in lower case: rungs under another spelling would be made anew at every tick.",
)
def _prefix_case(facts: Facts) -> Iterable[Fault]:
    prefix = facts.wanted.prefix
    if prefix != prefix.lower():
        yield Fault(f'contract.qos_prefix is "{prefix}".', settings(f'[contract]\nqos_prefix = "{prefix.lower()}"'))


@check(
    "qos-case",
    WARNING,
    "Does no QOS differ from a rung by case only?",
    "Slurm takes one for the other where it compares names without case, and users do so everywhere.",
    Source.QOS,
)
def _qos_case(facts: Facts) -> Iterable[Fault]:
    names = {rung.name.lower(): rung.name for rung in facts.wanted.ladder.rungs}
    for name in sorted(facts.qos):
        rung = names.get(name.lower())
        if rung is not None and rung != name:
            line = shell(f"sacctmgr remove qos where name={name}")
            yield Fault(f"QOS {name} differs from rung {rung} by case only.", line, subject=f"QOS {name}")


@check(
    "lane-limits",
    ERROR,
    "May a team hold as many debug GPUs as one debug job may ask for?",
    "Otherwise such a job is accepted and waits for ever, for a limit that it exceeds alone.",
)
def _lane_limits(facts: Facts) -> Iterable[Fault]:
    lane = facts.wanted.lane
    if lane is not None and lane.max_gpus > lane.max_gpus_per_team:
        yield Fault(
            f"debug_lane.max_gpus is {lane.max_gpus}, debug_lane.max_gpus_per_team {lane.max_gpus_per_team}.",
            settings(f"[debug_lane]\nmax_gpus_per_team = {lane.max_gpus}"),
        )


@check(
    "partition-qos-exempt",
    ERROR,
    "Has no partition under contract a QOS with a PreemptExemptTime?",
    "Slurm looks there first: with 0 no rung protects in that partition, with more unallocated work never yields.",
    Source.PARTITIONS,
    Source.QOS,
)
def _partition_exempt(facts: Facts) -> Iterable[Fault]:
    for part in facts.partitions:
        has = facts.qos.get(part.qos)
        if has is None or has.exempt is None or not facts.under_contract(part.name):
            continue
        yield Fault(
            f"Partition {part.name} has QOS {part.qos}, whose PreemptExemptTime of {spell(has.exempt)} goes before "
            "that of every rung.",
            shell(_modify(part.qos, "PreemptExemptTime=-1")),
            subject=f"partition {part.name}",
        )


@check(
    "partition-qos-list",
    ERROR,
    "Do partitions under contract let every rung in?",
    "A job whose rung is not allowed in its partition is refused, or waits for ever.",
    Source.PARTITIONS,
)
def _partition_lists(facts: Facts) -> Iterable[Fault]:
    rungs = [rung.name for rung in facts.wanted.ladder.rungs]
    for part in facts.partitions:
        allowed = part.allow_qos if part.allow_qos is not None else frozenset(rungs)
        shut = [name for name in rungs if name not in allowed or name in part.deny_qos]
        if not shut or not facts.under_contract(part.name):
            continue
        # One that lets none of them in, where no partition is named in the settings, may be meant to stay outside.
        outside = len(shut) == len(rungs) and not facts.wanted.partitions
        line = slurm_conf(f"PartitionName={part.name} ... AllowQos={','.join(sorted(allowed | set(rungs)))}")
        if outside:
            others = sorted(one.name for one in facts.partitions if one.name != part.name)
            line = settings(f"[contract]\npartitions = {others}".replace("'", '"'))
        yield Fault(
            f"Partition {part.name} does not let {some(shut)} in.",
            line,
            subject=f"partition {part.name}",
            severity=WARNING if outside else None,
        )
