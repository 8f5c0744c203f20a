"""The doctor: facts about a site in, findings out. Pure; reading the facts is others' work.

A check asks one question of `Facts`. Its name is stable. Where a source of facts could not be read, the checks that
need it are not made, and the source itself is a finding.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_fairshare.core.doctor import (
    accounts,
    bookkeeping,
    health,
    ladder,
    ordering,
    plugin,
    scheduling,
    stopping,
)
from slurm_fairshare.core.doctor.facts import Facts, Source
from slurm_fairshare.core.doctor.finding import Check, Checks, Fault, Finding, Line, Severity, shell

GROUPS: tuple[Checks, ...] = (
    ordering.CHECKS,
    stopping.CHECKS,
    scheduling.CHECKS,
    bookkeeping.CHECKS,
    plugin.CHECKS,
    ladder.CHECKS,
    accounts.CHECKS,
    health.CHECKS,
)
CHECKS: tuple[Check, ...] = tuple(check for group in GROUPS for check in group.all)

UNREAD = "unread"
"""The name of the finding for a source that could not be read."""

UNREAD_WHY = "What is not known is not taken for right: the checks that need it were not made."

_MILD = {Source.FILE, Source.PLUGIN, Source.PROBE, Source.BACKLOG, Source.RUNAWAYS, Source.CLUSTERS}
"""Sources without which the product still works: seen from another host than the controller's they may be missing."""

_REMEDY = {
    Source.FILE: "# run doctor on the controller, or set slurm.command_prefix to it",
    Source.PLUGIN: "# run doctor on the controller, or set slurm.command_prefix to it",
    Source.DATABASE: "slurm-fairshare database status",
    Source.TREE: "slurm-fairshare database status",
    Source.TICK: "slurm-fairshare database status",
}


@dataclass(frozen=True, slots=True)
class Examination:
    """What came of all checks: findings, worst first, and the names of the checks that were made and were not."""

    findings: tuple[Finding, ...]
    made: tuple[str, ...]
    left_out: tuple[str, ...]

    @property
    def worst(self) -> Severity | None:
        return max((finding.severity for finding in self.findings), default=None)


def examine(facts: Facts) -> Examination:
    """Make every check whose sources could be read."""
    made = [check for check in CHECKS if not check.needs & facts.unread.keys()]
    found = [finding for check in made for finding in check.findings(facts)]
    found += _unread(facts)
    names = {check.name for check in made}
    return Examination(
        findings=tuple(sorted(found, key=lambda finding: -finding.severity)),
        made=tuple(check.name for check in made),
        left_out=tuple(check.name for check in CHECKS if check.name not in names),
    )


def _unread(facts: Facts) -> list[Finding]:
    """One finding for each reason: a daemon that is down takes several sources with it."""
    by_reason: dict[str, list[Source]] = {}
    for source in Source:
        if source in facts.unread:
            by_reason.setdefault(facts.unread[source], []).append(source)
    return [_not_read(reason, sources) for reason, sources in by_reason.items()]


def _not_read(reason: str, sources: list[Source]) -> Finding:
    left_out = sum(bool(check.needs & set(sources)) for check in CHECKS)
    checks = f"{left_out} {'check was' if left_out == 1 else 'checks were'} not made"
    return Finding(
        UNREAD,
        Severity.WARNING if _MILD.issuperset(sources) else Severity.ERROR,
        ",".join(source.value for source in sources),
        f"Not read: {'; '.join(source.words for source in sources)}. {reason} ({checks})",
        UNREAD_WHY,
        shell(_REMEDY.get(sources[0], "scontrol ping; sacctmgr ping")),
    )


__all__ = [
    "CHECKS",
    "GROUPS",
    "UNREAD",
    "Check",
    "Examination",
    "Facts",
    "Fault",
    "Finding",
    "Line",
    "Severity",
    "Source",
    "examine",
]
