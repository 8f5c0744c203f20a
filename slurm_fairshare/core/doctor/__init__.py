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
    found += [_unread(source, reason) for source, reason in facts.unread.items()]
    names = {check.name for check in made}
    return Examination(
        findings=tuple(sorted(found, key=lambda finding: -finding.severity)),
        made=tuple(check.name for check in made),
        left_out=tuple(check.name for check in CHECKS if check.name not in names),
    )


def _unread(source: Source, reason: str) -> Finding:
    left_out = sum(source in check.needs for check in CHECKS)
    checks = f"{left_out} {'check was' if left_out == 1 else 'checks were'} not made"
    line = shell(_REMEDY.get(source, "scontrol ping; sacctmgr ping"))
    severity = Severity.WARNING if source in _MILD else Severity.ERROR
    wrong = f"Not read: {source.words}: {reason} ({checks})"
    return Finding(UNREAD, severity, source.value, wrong, UNREAD_WHY, line)


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
