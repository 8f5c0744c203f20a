"""Rights, versions, clocks, nodes, Postgres and the daemon itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from slurm_fairshare.core.doctor.facts import Facts, Release, Source, release_of
from slurm_fairshare.core.doctor.finding import (
    ADVICE,
    ERROR,
    WARNING,
    Checks,
    Fault,
    Severity,
    settings,
    shell,
    some,
)
from slurm_fairshare.units import duration

OLDEST: Final = (22, 5)
NEWEST: Final = (26, 5)
SKEW_WARNING: Final = 2.0
SKEW_ERROR: Final = 30.0
HIDING: Final = frozenset({"accounts", "jobs", "nodes", "partitions", "reservations", "usage", "users", "all"})

CHECKS = Checks("Rights, versions, clocks, the daemon")
check = CHECKS.check


@check(
    "admin-level",
    ERROR,
    "Has the daemon's user the AdminLevel it needs?",
    "Operator changes priorities and requeues jobs. Administrator is needed for `apply` of the ladder and to tell a "
    "stopped job's owner why, in its AdminComment.",
    Source.RIGHTS,
)
def _admin_level(facts: Facts) -> Iterable[Fault]:
    rights = facts.rights
    if rights.uid == 0 or rights.level == "Administrator":
        return
    wrong = f"User {rights.user} has AdminLevel {rights.level or 'None'}"
    if rights.level != "Operator":
        line = shell(f"sacctmgr modify user where name={rights.user} set AdminLevel=Administrator")
        missing = "" if rights.level else f" (slurmdbd knows no user {rights.user}: add it to an account first)"
        yield Fault(f"{wrong}{missing}: it can neither order the queue nor stop a run.", line)
    else:
        line = shell(
            f"sacctmgr modify user where name={rights.user} set AdminLevel=Administrator\n"
            "# or run `slurm-fairshare apply` as an administrator, and do without notes in AdminComment"
        )
        yield Fault(f"{wrong}: it can neither change the ladder nor write a job's AdminComment.", line, severity=ADVICE)


@check(
    "private-data",
    ERROR,
    "May the daemon's user see what PrivateData hides from others?",
    "What is hidden looks as if it were not there: usage would count as nothing and its team as under-served.",
    Source.CONFIG,
    Source.ACCOUNTING,
    Source.RIGHTS,
)
def _private_data(facts: Facts) -> Iterable[Fault]:
    hidden = sorted((facts.config.words("PrivateData") | facts.accounting.words("PrivateData")) & HIDING)
    privileged = facts.rights.uid == 0 or facts.rights.level in ("Operator", "Administrator")
    if hidden and not privileged:
        level = facts.rights.level or "None"
        yield Fault(
            f"PrivateData hides {', '.join(hidden)}, and user {facts.rights.user} has AdminLevel {level}.",
            shell(f"sacctmgr modify user where name={facts.rights.user} set AdminLevel=Operator"),
        )


# --- versions -------------------------------------------------------------------------------------


@check(
    "release",
    WARNING,
    "Is Slurm's release one of 22.05 to 26.05?",
    "Others were never tried: what the tools print and what Slurm does with QOS may differ.",
    Source.CONFIG,
)
def _release(facts: Facts) -> Iterable[Fault]:
    found = facts.release[:2]
    if found != (0, 0) and not OLDEST <= found <= NEWEST:
        shown = facts.config.text("SLURM_VERSION")
        yield Fault(f"slurmctld is version {shown}.", shell("scontrol --version    # 22.05 to 26.05 are tested"))


@dataclass(frozen=True, slots=True)
class Bug:
    """A fault of Slurm's own that concerns what we do. `fixed`: by branch, the first version without it.

    A branch that is not named has it if it lies between `since` and the last of `fixed`. `applies` narrows it to sites
    whose configuration meets it.
    """

    name: str
    severity: Severity
    words: str
    since: Release
    fixed: tuple[Release, ...]
    advice: str
    applies: Callable[[Facts], bool] = lambda _facts: True

    def met_by(self, release: Release) -> bool:
        """
        >>> bug = Bug("x", ERROR, "", (22, 5, 0), ((24, 11, 7), (25, 5, 5)), "")
        >>> [bug.met_by(r) for r in ((22, 5, 8), (24, 11, 6), (24, 11, 7), (25, 5, 4), (25, 5, 5), (25, 11, 0))]
        [True, True, False, True, False, False]
        """
        if release < self.since:
            return False
        mine = next((fix for fix in self.fixed if fix[:2] == release[:2]), None)
        return release < (mine or max(self.fixed))


def _parameters_unordered(facts: Facts) -> bool:
    names = list(facts.config.options("PreemptParameters"))
    return "min_exempt_priority" in names[:-1]


BUGS: Final = (
    Bug(
        "stale-pointers",
        ERROR,
        "slurmctld may crash after changes of associations or QOS (stale pointers), and the daemon makes many.",
        (25, 11, 0),
        ((25, 11, 7), (26, 5, 2)),
        "update Slurm to 25.11.7, 26.05.2 or later",
    ),
    Bug(
        "min-exempt-fatal",
        ERROR,
        "slurmctld ends at its next start: min_exempt_priority is not the last of PreemptParameters.",
        (23, 2, 0),
        ((24, 11, 7), (25, 5, 5), (25, 11, 1)),
        "take min_exempt_priority out, or update Slurm",
        _parameters_unordered,
    ),
    Bug(
        "deadlock-at-start",
        WARNING,
        "slurmctld may crash if it starts before slurmdbd while a partition has AllowQos or DenyQos.",
        (24, 11, 0),
        ((24, 11, 6), (25, 5, 0)),
        "start slurmdbd first, or update Slurm to 24.11.6 or later",
        lambda facts: any(part.allow_qos is not None or part.deny_qos for part in facts.partitions),
    ),
    Bug(
        "preemptor-waits",
        WARNING,
        "a job that preempts may not start, because limits are counted wrongly.",
        (24, 11, 0),
        ((24, 11, 4),),
        "update Slurm to 24.11.4 or later",
    ),
    Bug(
        "old-priority-after-requeue",
        ADVICE,
        "a requeued job keeps its old priority for up to PriorityCalcPeriod.",
        (20, 2, 0),
        ((24, 5, 5), (24, 11, 0)),
        "nothing, or update Slurm to 24.05.5 or later",
    ),
    Bug(
        "empty-preempt-list",
        ADVICE,
        "`sacctmgr modify qos set preempt=''` leaves a QOS that can never be preempted again. `apply` never writes it.",
        (20, 2, 0),
        ((24, 5, 4), (24, 11, 0)),
        "take names off a Preempt list with Preempt-=NAME, never with preempt=''",
    ),
    Bug(
        "expedite-after-success",
        WARNING,
        "an expedited job is requeued although it ended well.",
        (25, 11, 0),
        ((25, 11, 3),),
        "switch enable_expedited_requeue off, or update Slurm to 25.11.3 or later",
        lambda facts: "enable_expedited_requeue" in facts.config.options("SlurmctldParameters"),
    ),
)


@check(
    "known-bug",
    ERROR,
    "Is Slurm's version free of the bugs that concern the product?",
    "Each of them is in SchedMD's changelog as corrected in a later version.",
    Source.CONFIG,
    Source.PARTITIONS,
)
def _known_bug(facts: Facts) -> Iterable[Fault]:
    shown = facts.config.text("SLURM_VERSION")
    for bug in BUGS:
        if facts.release != (0, 0, 0) and bug.met_by(facts.release) and bug.applies(facts):
            yield Fault(f"Slurm {shown}: {bug.words}", shell(f"# {bug.advice}"), bug.name, severity=bug.severity)


@check(
    "versions-apart",
    WARNING,
    "Are slurmctld and slurmdbd of releases that may work together?",
    "slurmdbd must not be older than slurmctld, nor more than three releases newer.",
    Source.CONFIG,
    Source.ACCOUNTING,
)
def _apart(facts: Facts) -> Iterable[Fault]:
    ctld, dbd = facts.release[:2], release_of(facts.accounting.text("SLURMDBD_VERSION"))[:2]
    if (0, 0) not in (ctld, dbd) and dbd < ctld:
        yield Fault(
            f"slurmdbd is {facts.accounting.text('SLURMDBD_VERSION')}, slurmctld {facts.config.text('SLURM_VERSION')}.",
            shell("# update slurmdbd first, then slurmctld, then the nodes"),
        )


# --- clocks, nodes --------------------------------------------------------------------------------


@check(
    "clock-skew",
    ERROR,
    "Do the clocks of slurmctld and Postgres agree with this one?",
    "How long a run has lasted is told by two clocks: where they differ, protection ends early or late, and usage is "
    "cut off at the wrong moment.",
)
def _clock_skew(facts: Facts) -> Iterable[Fault]:
    for clock in facts.clocks:
        off = abs(clock.ahead) - clock.doubt
        if off >= SKEW_WARNING:
            side = "ahead of" if clock.ahead > 0 else "behind"
            yield Fault(
                f"The clock of {clock.name} is {duration(round(abs(clock.ahead)))} {side} this host's.",
                shell("timedatectl set-ntp true    # on both hosts"),
                subject=clock.name,
                severity=None if off >= SKEW_ERROR else WARNING,
            )


@check(
    "drained-without-reason",
    ADVICE,
    "Has every drained or down node a reason?",
    "Nobody can tell whether it waits for a repair or was forgotten; its GPUs are in nobody's entitlement meanwhile.",
    Source.NODES,
)
def _no_reason(facts: Facts) -> Iterable[Fault]:
    found = sorted(
        node.name
        for node in facts.nodes
        if node.states & {"DRAIN", "DOWN", "FAIL"} and node.reason.lower() in ("", "none", "(null)", "?")
    )
    if found:
        line = shell(f'scontrol update nodename={found[0]} reason="..."    # or state=resume')
        yield Fault(f"Out of service without a reason: {some(found)}.", line, subject=f"node {found[0]}")


@check(
    "no-gpus",
    ERROR,
    "Is a GPU in service?",
    "With no GPU in service nobody is owed anything, and every team ranks alike.",
    Source.NODES,
)
def _no_gpus(facts: Facts) -> Iterable[Fault]:
    serving = [node for node in facts.nodes if not node.states & {"DRAIN", "DOWN", "FAIL", "NOT_RESPONDING"}]
    has = any(name.startswith("gres/gpu") for node in facts.nodes for name in node.tres)
    if facts.nodes and has and not any(name.startswith("gres/gpu") for node in serving for name in node.tres):
        yield Fault("Every node with GPUs is down or drained.", shell("sinfo -R"))


# --- Postgres and the daemon ----------------------------------------------------------------------


@check(
    "schema",
    ERROR,
    "Has Postgres the schema this version needs?",
    "Neither daemon nor reports work on an older one.",
    Source.DATABASE,
)
def _schema(facts: Facts) -> Iterable[Fault]:
    has, line = facts.database, shell("slurm-fairshare database upgrade")
    if has.version is None:
        yield Fault("The database holds no schema of ours.", line)
    elif has.version != has.wanted and has.version in has.known:
        yield Fault(f"The schema is version {has.version}; this version needs {has.wanted}.", line)


@check(
    "database-rights",
    ERROR,
    "May the database role do what the daemon does?",
    "A tick that may not write ends with an error, and priorities grow old.",
    Source.DATABASE,
)
def _database_rights(facts: Facts) -> Iterable[Fault]:
    if facts.database.lacks:
        role = facts.database.role
        lines = "\n".join(f"grant {right} to {role};" for right in facts.database.lacks[:8])
        wrong = f"Role {role} may not {some(facts.database.lacks)}."
        yield Fault(wrong, shell(f'psql -c "{lines}"'))


@check(
    "database-superuser",
    WARNING,
    "Is the daemon's database role an ordinary one?",
    "A superuser passes every right of managers and readers by, and its password lies on the daemon's host.",
    Source.DATABASE,
)
def _superuser(facts: Facts) -> Iterable[Fault]:
    if facts.database.superuser:
        role = facts.database.role
        yield Fault(f"Role {role} is a superuser.", shell(f"psql -c 'alter role {role} nosuperuser'"))


@check(
    "pages-login",
    WARNING,
    "Is the dashboard's login in both roles that it shows pages with?",
    "Pages are read with the rights of fairshare_reader or fairshare_manager, by what Postgres lets the viewer see. A "
    "login that is not in a role cannot take it on, and its viewers get no page.",
    Source.DATABASE,
)
def _pages_login(facts: Facts) -> Iterable[Fault]:
    for login, role in facts.database.pages_lack:
        yield Fault(
            f"The dashboard runs as {login}, which is not in {role}.",
            shell(f"psql -c 'grant {role} to {login}'"),
            subject=login,
        )


@check(
    "secret-open",
    WARNING,
    "Are the files that hold passwords of the database closed to others?",
    "Whoever reads the daemon's password may write what the daemon writes; the settings that all may read need no more "
    "than the reader's.",
)
def _secret_open(facts: Facts) -> Iterable[Fault]:
    for place in facts.wanted.open_secrets:
        yield Fault(
            f"Everybody on this host may read {place}.",
            shell(f"chgrp fairshare {place} && chmod 640 {place}"),
            subject=place,
        )


@check(
    "no-tick",
    WARNING,
    "Has a tick been recorded?",
    "Until the first one nobody is ranked and no priority is set.",
    Source.TICK,
)
def _no_tick(facts: Facts) -> Iterable[Fault]:
    if facts.tick.at is None:
        last = f" The last attempt failed: {facts.tick.failure}" if facts.tick.failure else ""
        yield Fault(f"No tick has been recorded yet.{last}", shell("systemctl start slurm-fairshare"))


@check(
    "tick-old",
    ERROR,
    "Is the last tick recent?",
    "Slurm goes on with the priorities it was given last, and nobody is stopped on old data: who is under-served now "
    "waits.",
    Source.TICK,
)
def _tick_old(facts: Facts) -> Iterable[Fault]:
    if facts.tick.at is None:
        return
    age = facts.now - facts.tick.at
    if age > 3 * facts.wanted.interval:
        old = age > max(facts.wanted.max_age, 3 * facts.wanted.interval)
        failed = f" Since then it failed: {facts.tick.failure}" if facts.tick.failure else ""
        yield Fault(
            f"The last tick was {duration(age.total_seconds())} ago; there should be one every "
            f"{duration(facts.wanted.interval.total_seconds())}.{failed}",
            shell("systemctl status slurm-fairshare"),
            severity=None if old else WARNING,
        )


@check(
    "interval-long",
    WARNING,
    "Is the time between ticks shorter than the age beyond which data counts as stale?",
    "Otherwise the data is stale before the next tick comes, and nobody is stopped in between.",
)
def _interval(facts: Facts) -> Iterable[Fault]:
    if facts.wanted.interval >= facts.wanted.max_age:
        length = duration(2 * facts.wanted.interval.total_seconds())
        yield Fault(
            f"daemon.interval is {duration(facts.wanted.interval.total_seconds())}, rebalance.max_age "
            f"{duration(facts.wanted.max_age.total_seconds())}.",
            settings(f'[rebalance]\nmax_age = "{length}"'),
        )


@check(
    "push-off",
    ADVICE,
    "Does the daemon change Slurm?",
    "With push off everything is computed and shown, and nothing changes: right while a site looks on, and easily "
    "forgotten afterwards.",
)
def _push_off(facts: Facts) -> Iterable[Fault]:
    if not facts.wanted.push:
        yield Fault("daemon.push is false.", settings("[daemon]\npush = true"))
