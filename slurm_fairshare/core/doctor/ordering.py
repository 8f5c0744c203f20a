"""The order of the queue: does what the daemon writes reach the jobs, and does nothing else move them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from slurm_fairshare.core.doctor.facts import Facts, Source
from slurm_fairshare.core.doctor.finding import ADVICE, ERROR, WARNING, Checks, Fault, Severity, slurm_conf

ROOM: Final = 19_999
"""What may be added to a job inside one step of the in-team priority (20,000) without reaching the next."""

NO_NORMAL_ALL_MEANS_ALL: Final = (26, 5, 0)
"""Before it, `scontrol show config` printed NO_NORMAL_ALL where only one of the four flags was set."""

FLAGS: Final = "PriorityFlags=NO_NORMAL_ASSOC,NO_NORMAL_QOS,CALCULATE_RUNNING"

MULTIFACTOR: Final = "priority/multifactor"

CHECKS = Checks("Order of the queue")
check = CHECKS.check


def flags(facts: Facts) -> frozenset[str]:
    """PriorityFlags in lower case, with what NO_NORMAL_ALL stands for.

    An older slurmctld says NO_NORMAL_ALL for any of them; then the file, where it can be read, tells which.
    """
    shown = facts.config.words("PriorityFlags")
    if "no_normal_all" not in shown:
        return shown
    written = facts.lines.get("priorityflags", ())
    if facts.release < NO_NORMAL_ALL_MEANS_ALL and written:
        said = {word.strip().lower() for word in written[-1].split(",")}
        if "no_normal_all" not in said:
            return (shown - {"no_normal_all"}) | (said & {"no_normal_assoc", "no_normal_qos"})
    return shown | {"no_normal_assoc", "no_normal_qos"}


def multifactor(facts: Facts) -> bool:
    """Whether the other settings of the order mean anything: without multifactor Slurm does not even show them."""
    return facts.config.text("PriorityType") == MULTIFACTOR


@check(
    "priority-type",
    ERROR,
    "Is PriorityType priority/multifactor?",
    "Only multifactor carries an association's Priority, in which the daemon writes the order, to the jobs.",
    Source.CONFIG,
)
def _priority_type(facts: Facts) -> Iterable[Fault]:
    if not multifactor(facts):
        found = facts.config.text("PriorityType") or "not set"
        yield Fault(f"PriorityType is {found}.", slurm_conf(f"PriorityType={MULTIFACTOR}"))


@check(
    "assoc-normalised",
    ERROR,
    "Does PriorityFlags hold NO_NORMAL_ASSOC?",
    "Without it Slurm divides every association's Priority by the largest: bands of 100,000 shrink below one point, "
    "and all of them shift when the first one changes.",
    Source.CONFIG,
)
def _assoc_normalised(facts: Facts) -> Iterable[Fault]:
    if multifactor(facts) and "no_normal_assoc" not in flags(facts):
        yield Fault("PriorityFlags lacks NO_NORMAL_ASSOC.", slurm_conf(FLAGS))


@check(
    "qos-normalised",
    ERROR,
    "With a debug lane: does PriorityFlags hold NO_NORMAL_QOS?",
    "Without it the debug rung's Priority counts as one point, and short small jobs wait with all others.",
    Source.CONFIG,
)
def _qos_normalised(facts: Facts) -> Iterable[Fault]:
    if multifactor(facts) and facts.wanted.lane is not None and "no_normal_qos" not in flags(facts):
        yield Fault("PriorityFlags lacks NO_NORMAL_QOS, and the debug lane is on.", slurm_conf(FLAGS))


@check(
    "calculate-running",
    WARNING,
    "Does PriorityFlags hold CALCULATE_RUNNING?",
    "Without it a running job keeps the priority it had when it started; sprio and Slurm's own comparisons then show "
    "a standing its team no longer has.",
    Source.CONFIG,
)
def _calculate_running(facts: Facts) -> Iterable[Fault]:
    if multifactor(facts) and "calculate_running" not in facts.config.words("PriorityFlags"):
        yield Fault("PriorityFlags lacks CALCULATE_RUNNING.", slurm_conf(FLAGS))


@check(
    "increase-only",
    ERROR,
    "Is PriorityFlags free of INCR_ONLY?",
    "With it no job's priority ever falls: a team that is over its target keeps the place it had while it was under.",
    Source.CONFIG,
)
def _increase_only(facts: Facts) -> Iterable[Fault]:
    if "incr_only" in facts.config.words("PriorityFlags"):
        yield Fault("PriorityFlags holds INCR_ONLY.", slurm_conf(FLAGS))


@check(
    "weight-assoc",
    ERROR,
    "Is PriorityWeightAssoc 1?",
    "The association's Priority is the job's place. With 0 it is ignored, with more it passes 32 bits and is cut off.",
    Source.CONFIG,
)
def _weight_assoc(facts: Facts) -> Iterable[Fault]:
    yield from _one(facts, "PriorityWeightAssoc")


@check(
    "weight-qos",
    ERROR,
    "With a debug lane: is PriorityWeightQOS 1? Without one: 0 or 1?",
    "The debug rung stands above the bands by the Priority of its QOS, times this weight.",
    Source.CONFIG,
)
def _weight_qos(facts: Facts) -> Iterable[Fault]:
    if facts.wanted.lane is not None or (facts.config.number("PriorityWeightQOS") or 0) > 1:
        yield from _one(facts, "PriorityWeightQOS")


def _one(facts: Facts, name: str) -> Iterable[Fault]:
    found = facts.config.number(name)
    if multifactor(facts) and found != 1:
        yield Fault(f"{name} is {found if found is not None else 'not set'}.", slurm_conf(f"{name}=1"))


@check(
    "weight-age",
    ERROR,
    "Is PriorityWeightAge at most 19,999?",
    "One step of the in-team priority is 20,000: more age than that carries a job past what its team put first, and "
    "from 60,000 on into the band of another team.",
    Source.CONFIG,
)
def _weight_age(facts: Facts) -> Iterable[Fault]:
    found = facts.config.number("PriorityWeightAge") or 0
    if found > ROOM:
        yield Fault(f"PriorityWeightAge is {found}.", slurm_conf(f"PriorityWeightAge={ROOM}"))


_OTHERS: Final = {
    "weight-fairshare": ("PriorityWeightFairShare", "Slurm's own fair-share knows neither budgets nor the window"),
    "weight-jobsize": ("PriorityWeightJobSize", "a job's size would order teams"),
    "weight-partition": ("PriorityWeightPartition", "the choice of a partition would order teams"),
}


def _other_weight(name: str, parameter: str, why: str) -> None:
    @check(
        name,
        ERROR,
        f"Is {parameter} 0?",
        f"Otherwise {why}. Together with age, what stays within {ROOM:,} points only orders jobs inside a team; more "
        "crosses into the next step or band.",
        Source.CONFIG,
    )
    def look(facts: Facts) -> Iterable[Fault]:
        found = facts.config.number(parameter) or 0
        if found:
            yield Fault(f"{parameter} is {found}.", slurm_conf(f"{parameter}=0"), severity=_if_within(facts, found))


for _name, (_parameter, _why) in _OTHERS.items():
    _other_weight(_name, _parameter, _why)


@check(
    "weight-tres",
    ERROR,
    "Is PriorityWeightTRES unset?",
    "Otherwise what a job asks for would order teams. Together with age, what stays within 19,999 points only orders "
    "jobs inside a team; more crosses into the next step or band.",
    Source.CONFIG,
)
def _weight_tres(facts: Facts) -> Iterable[Fault]:
    options = facts.config.options("PriorityWeightTRES")
    total = sum(int(float(value or 0)) for value in options.values() if value.replace(".", "", 1).isdigit())
    if total:
        shown = facts.config.text("PriorityWeightTRES")
        fix = slurm_conf("# no PriorityWeightTRES line")
        yield Fault(f"PriorityWeightTRES is {shown}.", fix, severity=_if_within(facts, total))


def _if_within(facts: Facts, points: int) -> Severity | None:
    """Advice where these points and age together stay inside one step."""
    return ADVICE if points + (facts.config.number("PriorityWeightAge") or 0) <= ROOM else None


@check(
    "site-factor-plugin",
    ERROR,
    "Is PrioritySiteFactorPlugin unset?",
    "It writes the site factor of every job anew; there the product keeps low, normal and high within a team, and the "
    "place of large jobs that have waited long.",
    Source.CONFIG,
)
def _site_factor_plugin(facts: Facts) -> Iterable[Fault]:
    found = facts.config.text("PrioritySiteFactorPlugin")
    if found:
        yield Fault(f"PrioritySiteFactorPlugin is {found}.", slurm_conf("# no PrioritySiteFactorPlugin line"))


@check(
    "calc-period",
    WARNING,
    "Is PriorityCalcPeriod one minute?",
    "Jobs that wait already follow a new order only once in this time.",
    Source.CONFIG,
)
def _calc_period(facts: Facts) -> Iterable[Fault]:
    found = facts.config.seconds("PriorityCalcPeriod")
    if multifactor(facts) and (found is None or found > 60):
        shown = facts.config.text("PriorityCalcPeriod") or "not set, which means 5 minutes"
        yield Fault(f"PriorityCalcPeriod is {shown}.", slurm_conf("PriorityCalcPeriod=1"))


@check(
    "partition-tier",
    WARNING,
    "Do partitions that share nodes have the same PriorityTier?",
    "Slurm sorts by PriorityTier before priority: on shared nodes the tier decides who is next, not the budgets.",
    Source.PARTITIONS,
)
def _partition_tier(facts: Facts) -> Iterable[Fault]:
    ours = [one for one in facts.partitions if facts.under_contract(one.name)]
    for number, one in enumerate(ours):
        for other in ours[number + 1 :]:
            if one.nodes & other.nodes and one.priority_tier != other.priority_tier:
                low, high = sorted((one, other), key=lambda part: part.priority_tier)
                yield Fault(
                    f"Partition {high.name} has PriorityTier {high.priority_tier}, partition {low.name} on the same "
                    f"nodes has {low.priority_tier}.",
                    slurm_conf(f"PartitionName={high.name} ... PriorityTier={low.priority_tier}"),
                    subject=f"partition {high.name}",
                )
