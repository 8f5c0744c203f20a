"""`decisions`: what the rebalancer decided, one line a run that was to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from slurm_fairshare.core.decisions import Outcome, Recorded, Side
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import duration, gpu_hours, moment

_GOOD = frozenset({Outcome.REQUEUED, Outcome.ENDED})


def _victim(get: Callable[[Side], Any]) -> Callable[[Recorded], Any]:
    return lambda one: get(one.decision.victim)


def _preemptor(get: Callable[[Side], Any]) -> Callable[[Recorded], Any]:
    return lambda one: get(one.decision.preemptor) if one.decision.preemptor else None


def _short_moment(at: datetime) -> str:
    return moment(at)[5:16].replace("T", " ") + "Z"


def _outcome(one: Recorded) -> str:
    return "only shown" if one.decision.dry_run else one.outcome.value


def _paint(one: Recorded) -> str:
    if one.outcome in _GOOD:
        return "green"
    return "red" if one.outcome is Outcome.REFUSED else "yellow"


def _seconds(value: int) -> str:
    return duration(value)


def _ratio(value: float) -> str:
    return f"{value:.2f}"


COLUMNS: tuple[Column[Recorded], ...] = (
    Column("At", lambda one: one.decision.at, "when it was decided", show=_short_moment),
    Column("Victim", _victim(lambda side: side.label), "the job that was to yield", right=True),
    Column("VictimUser", _victim(lambda side: side.user), "its owner", spare=5, head="User"),
    Column("VictimAccount", _victim(lambda side: side.account), "its account", elastic=True, spare=1, head="Account"),
    Column(
        "VictimNode", _victim(lambda side: side.node), "the node of the tree that was compared", elastic=True, spare=9
    ),
    Column(
        "VictimRatio",
        _victim(lambda side: side.ratio),
        "that node's usage / entitlement",
        _ratio,
        right=True,
        spare=2,
        head="Ratio",
    ),
    Column("VictimGPUs", _victim(lambda side: side.gpus), "GPUs it held", right=True, spare=6, head="GPUs"),
    Column("Preemptor", _preemptor(lambda side: side.label), "the job it yielded to; none for a drain", right=True),
    Column("PreemptorUser", _preemptor(lambda side: side.user), "its owner", spare=7, head="User"),
    Column(
        "PreemptorAccount", _preemptor(lambda side: side.account), "its account", elastic=True, spare=3, head="Account"
    ),
    Column("PreemptorNode", _preemptor(lambda side: side.node), "the node that was compared", elastic=True, spare=10),
    Column(
        "PreemptorRatio",
        _preemptor(lambda side: side.ratio),
        "that node's usage / entitlement",
        _ratio,
        right=True,
        spare=4,
        head="Ratio",
    ),
    Column("Rule", lambda one: one.decision.rule, "the rule that allowed it"),
    Column(
        "OverMinimum",
        lambda one: one.decision.over_minimum,
        "seconds the run was past its minimum runtime",
        show=_seconds,
        right=True,
        spare=5,
    ),
    Column("MinRuntime", lambda one: one.decision.min_runtime, "its minimum runtime in seconds", _seconds, right=True),
    Column("Resumable", lambda one: one.decision.resumable, "whether the job says it resumes"),
    Column(
        "Lost",
        lambda one: one.decision.lost,
        "work taken to be thrown away, in GPU-seconds (table: GPU-hours)",
        show=gpu_hours,
        right=True,
        spare=8,
    ),
    Column("LostSince", lambda one: one.decision.lost_since, "from when on it counts: start, notice, ..."),
    Column("Outcome", lambda one: one.outcome, "what became of it", tell=_outcome, paint=_paint),
    Column("Changed", lambda one: one.changed, "when the outcome was recorded"),
    Column("DryRun", lambda one: one.decision.dry_run, "whether it was only shown"),
    Column("Started", lambda one: one.decision.started, "start of the run that was to stop"),
    Column("Nodes", lambda one: ",".join(one.decision.nodes), "nodes that were to be freed"),
    Column("Detail", lambda one: one.detail, "what Slurm said, where it said anything"),
    Column("Id", lambda one: one.decision.id, "the decision's own name"),
)

TABLE = (
    "At",
    "Victim",
    "VictimUser",
    "VictimAccount",
    "VictimRatio",
    "VictimGPUs",
    "Preemptor",
    "PreemptorUser",
    "PreemptorAccount",
    "PreemptorRatio",
    "Rule",
    "OverMinimum",
    "Lost",
    "Outcome",
)
SCRIPT = (*TABLE[:-1], "MinRuntime", "Resumable", "Outcome", "DryRun", "Detail")


def _lost_by_rule(rows: Sequence[Recorded]) -> dict[str, int]:
    """GPU-seconds of work thrown away by what was carried out, by rule."""
    found: dict[str, int] = {}
    for one in rows:
        if one.outcome in _GOOD and not one.decision.dry_run:
            found[one.decision.rule.value] = found.get(one.decision.rule.value, 0) + one.decision.lost
    return dict(sorted(found.items()))


def _lost_sentence(rows: Sequence[Recorded]) -> tuple[str, ...]:
    by_rule = _lost_by_rule(rows)
    if not by_rule:
        return ()
    parts = ", ".join(f"{rule} {gpu_hours(lost)}" for rule, lost in by_rule.items())
    return (f"Work thrown away by them, estimated: {gpu_hours(sum(by_rule.values()))} GPU-hours ({parts}).",)


def report(recorded: Sequence[Recorded], since: datetime, now: datetime) -> Report[Recorded]:
    """Decisions taken in `[since, now)`, the oldest first."""
    rows = sorted(recorded, key=lambda one: (one.decision.at, one.decision.id))
    span = duration((now - since) / timedelta(seconds=1))
    return Report(
        noun="decisions",
        columns=COLUMNS,
        rows=rows,
        shown=TABLE,
        script=SCRIPT,
        above=(f"Decisions from {moment(since)} to {moment(now)} ({span}, UTC). `why JOBID` tells one in words.",),
        below=_lost_sentence(rows),
        facts={"since": since, "until": now, "lost_gpu_seconds": _lost_by_rule(rows)},
        empty="Nobody was asked to yield in this time.",
    )
