"""What one tick or one rebalance pass did, in sentences and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_fairshare.core.decisions import Recorded, in_words
from slurm_fairshare.core.plan import describe
from slurm_fairshare.core.rebalance import Declined
from slurm_fairshare.core.records import TickReport
from slurm_fairshare.reports.why import because, told_to_yield
from slurm_fairshare.store.facts import TickFacts
from slurm_fairshare.units import duration, moment


def account_notes(unknown: Sequence[str], unbudgeted: Sequence[str]) -> tuple[str, ...]:
    """What does not match between the tree and Slurm, each with the remedy."""
    notes = []
    if unknown:
        names = ", ".join(unknown)
        notes.append(
            f"In the budget tree but unknown to Slurm: {names}. Create them with `sacctmgr add account NAME`, "
            "or take them out of the tree."
        )
    if unbudgeted:
        names = ", ".join(unbudgeted)
        notes.append(
            f"In Slurm but in nobody's budget: {names}. Their jobs rank behind; bind them to a leaf to change that."
        )
    return tuple(notes)


def failure_notes(tick: TickFacts) -> tuple[str, ...]:
    """Whether ticks have failed since the last that was recorded."""
    if not tick.failures:
        return ()
    last = tick.failures[-1]
    return (
        f"Since then {len(tick.failures)} {'tick has' if len(tick.failures) == 1 else 'ticks have'} failed, "
        f"the last at {moment(last.at)} while it was to {last.phase}: {last.error}",
    )


def tick_sentences(report: TickReport) -> list[str]:
    window = report.window
    leaves = len(report.ranking.leaves)
    took = duration((report.finished - report.at).total_seconds())
    told = [
        f"Tick at {moment(report.at)}, done in {took}: {leaves} {'account' if leaves == 1 else 'accounts'} ranked over "
        f"{moment(window.start)} to {moment(window.end)} ({duration(window.seconds)}, UTC)."
    ]
    told += [f"{leaf.rank:>3}. {leaf.path} (account {leaf.account})" for leaf in report.ranking.leaves]
    if not report.changes:
        told.append("Nothing to change: Slurm holds what it should.")
    else:
        done = "Changed in Slurm" if report.pushed else "Not pushed; would change in Slurm"
        told.append(f"{done}:")
        told += [f"  - {describe(change)}" for change in report.changes]
    return [*told, *account_notes(report.unknown_accounts, report.unbudgeted_accounts)]


def tick_facts(report: TickReport) -> dict[str, Any]:
    return {
        "at": report.at,
        "finished": report.finished,
        "window_start": report.window.start,
        "window_end": report.window.end,
        "zone": "UTC",
        "ranking": [
            {
                "rank": leaf.rank,
                "budget": leaf.path,
                "account": leaf.account,
                "entitlement": leaf.standing.entitlement,
                "usage": leaf.standing.usage,
                "ratio": leaf.standing.ratio,
            }
            for leaf in report.ranking.leaves
        ],
        "changes": [describe(change) for change in report.changes],
        "pushed": report.pushed,
        "unknown_accounts": report.unknown_accounts,
        "unbudgeted_accounts": report.unbudgeted_accounts,
    }


def pass_sentences(recorded: Sequence[Recorded], declined: Sequence[Declined], dry_run: bool) -> list[str]:
    """Who yields, and for whom nobody was stopped and why."""
    told = [f"{told_to_yield(one.decision)} {because(one.decision)} {_state(one, dry_run)}" for one in recorded]
    if not recorded:
        told.append("Nobody yields.")
    told += [_declined(one) for one in declined]
    return told


def _state(one: Recorded, dry_run: bool) -> str:
    if dry_run:
        return "Only shown (dry run): nothing was done."
    return f"Outcome: {one.outcome.value}{f' ({one.detail})' if one.detail else ''}."


def _declined(one: Declined) -> str:
    who = f"Nobody was stopped for job {one.job_id}" if one.job_id else "Nobody was stopped"
    return f"{who}: {one.words} [{one.why.value}]."


def pass_facts(recorded: Sequence[Recorded], declined: Sequence[Declined], dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "decisions": [
            {
                "id": one.decision.id,
                "victim": one.decision.victim.label,
                "preemptor": one.decision.preemptor.label if one.decision.preemptor else None,
                "rule": one.decision.rule,
                "outcome": one.outcome,
                "detail": one.detail,
                "words": in_words(one.decision),
            }
            for one in recorded
        ],
        "declined": [{"job_id": one.job_id, "why": one.why, "words": one.words} for one in declined],
    }
