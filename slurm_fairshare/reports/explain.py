"""`explain ACCOUNT|JOBID|USER`: where it stands at each level of the tree, and what follows from that, in words.

A level is a node among its siblings: that is where two programmes, two teams are compared. What is said about who
would yield is what a pass of the rebalancer decides on the last picture; nothing is done about it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_fairshare.core.decisions import Decision
from slurm_fairshare.core.fairshare import Ranking, Standing
from slurm_fairshare.core.projection import Turn, Turns
from slurm_fairshare.core.rebalance import Declined, Pass
from slurm_fairshare.core.tree import Node, account_key, ancestors, parent_of
from slurm_fairshare.reports import why as why_report
from slurm_fairshare.reports.queue import QueueRow, contract_words
from slurm_fairshare.reports.words import Basis, standing_words
from slurm_fairshare.units import HOUR, duration, gpu_hours, moment, percent

MOST = 5
"""So many jobs are named in a sentence; the others are counted."""

UserUsage = Mapping[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Level:
    """A node among its siblings: `place` 1 is served first. `ahead` and `behind` are the siblings on either side,
    with their standings."""

    node: Node
    standing: Standing
    of_parent: float
    place: int
    siblings: int
    ahead: tuple[tuple[str, Standing], ...]
    behind: tuple[tuple[str, Standing], ...]


@dataclass(frozen=True)
class Known:
    """Everything an explanation is made of. `capacity` in GPUs (weighted by type), None if not known; `passed` is
    what a rebalance pass decides now, None where the picture cannot be used."""

    ranking: Ranking
    basis: Basis
    rows: tuple[QueueRow, ...]
    capacity: float | None
    turns: Mapping[str, Turns]
    passed: Pass | None
    used: UserUsage


# --- what is meant ----------------------------------------------------------------------------------


def nodes_named(ranking: Ranking, name: str) -> tuple[str, ...]:
    """Paths of the nodes that an account's name, a node's name or a path may mean, best match first."""
    leaf = ranking.leaf(name)
    if leaf is not None:
        return (leaf.path,)
    key = account_key(name)
    if any(account_key(path) == key for path in ranking.tree.nodes):
        return tuple(path for path in ranking.tree.nodes if account_key(path) == key)
    return tuple(path for path, node in ranking.tree.nodes.items() if account_key(node.name) == key)


def paths_of_user(ranking: Ranking, user: str, used: UserUsage, rows: Iterable[QueueRow]) -> tuple[str, ...]:
    """The leaves in which a user has used or wants anything, in order of rank."""
    accounts = {account for (account, name), amount in used.items() if name == user and amount}
    accounts |= {account_key(row.job.account) for row in rows if row.job.user == user}
    return tuple(leaf.path for leaf in ranking.leaves if account_key(leaf.account) in accounts)


def levels(ranking: Ranking, path: str) -> tuple[Level, ...]:
    """The node and all above it, from the top."""
    return tuple(_level(ranking, one) for one in ancestors(path))


def _level(ranking: Ranking, path: str) -> Level:
    siblings = ranking.tree.children_of(parent_of(path))
    order = sorted(siblings, key=lambda node: (ranking.standings[node.path].place(), node.path))
    place = next(index for index, node in enumerate(order) if node.path == path)
    weight = sum(node.weight for node in siblings)
    named = [(node.name, ranking.standings[node.path]) for node in order]
    node = ranking.tree.nodes[path]
    return Level(
        node=node,
        standing=ranking.standings[path],
        of_parent=node.weight / weight if weight else 0.0,
        place=place + 1,
        siblings=len(order),
        ahead=tuple(named[:place]),
        behind=tuple(named[place + 1 :]),
    )


# --- sentences --------------------------------------------------------------------------------------


def explain_node(known: Known, path: str) -> list[list[str]]:
    """An account or a node above: its levels, what it is owed, its jobs, who would go first, when that turns."""
    return [
        _heading(known, path),
        _level_sentences(known, path),
        [*_owed(known, path), *_jobs(known, path)],
        _pass_about(known, path),
        _turning(known, path),
    ]


def explain_user(known: Known, user: str, paths: Sequence[str]) -> list[list[str]]:
    """A user has no standing of its own: the account's counts. So each account, and the user's part of it."""
    told = [[f"User {user}: users have no standing of their own, their account's counts for all of them."]]
    for path in paths:
        node = known.ranking.tree.nodes[path]
        key = account_key(node.account or "")
        mine, whole = known.used.get((key, user), 0.0), known.ranking.standings[path].usage
        part = f"{percent(mine / whole)} of what the account used" if whole > 0 else "the account used nothing"
        rows = [row for row in known.rows if row.job.user == user and account_key(row.job.account) == key]
        told += [
            [*_heading(known, path), f"{user} used {gpu_hours(mine)} GPU-hours of it: {part}."],
            _level_sentences(known, path),
            _job_sentences(known, rows, f"{user} has"),
            _turning(known, path),
        ]
    return told


def explain_job(known: Known, job: why_report.Why) -> list[list[str]]:
    """What `why` says, then the account's standing, which is the reason behind it."""
    told = [*why_report.paragraphs(job)]
    if job.row is None or job.row.leaf is None:
        return told
    path = job.row.leaf.path
    return [*told, _for_job(known, job.row), _level_sentences(known, path), _turning(known, path)]


def _heading(known: Known, path: str) -> list[str]:
    node = known.ranking.tree.nodes[path]
    stale = [known.basis.warning()] if known.basis.stale else []
    if node.account is None:
        below = sum(1 for one in node.walk() if one.is_leaf)
        return [*stale, f"{path} is a node of the budget tree with {below} {_plural(below, 'account')} below it."]
    leaf = known.ranking.leaf(node.account)
    rank = f"It ranks {leaf.rank} of {len(known.ranking.leaves)}: 1 goes first." if leaf else ""
    return [*stale, f"Account {node.account} is {path} in the budget tree. {rank}".rstrip()]


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"


def _level_sentences(known: Known, path: str) -> list[str]:
    window = known.basis.window
    length = f"in the last {duration(window.seconds)}" if window else "in the lookback window"
    return [
        f"Level by level, {length}: the first level in which two teams differ decides between them.",
        *(_level_sentence(level) for level in levels(known.ranking, path)),
    ]


def _level_sentence(level: Level) -> str:
    standing = level.standing
    told = (
        f"{level.node.path}: {percent(level.of_parent)} of its level, {percent(level.node.effective)} of the cluster. "
        f"Owed {gpu_hours(standing.entitlement)} GPU-hours, used {gpu_hours(standing.usage)}: "
        f"{standing_words(standing)}."
    )
    if level.siblings == 1:
        return f"{told} It has no siblings to be compared with."
    ahead = f"after {_siblings(level.ahead)}" if level.ahead else "first"
    behind = f", before {_siblings(level.behind)}" if level.behind else ""
    return f"{told} Place {level.place} of {level.siblings}: {ahead}{behind}."


def _siblings(named: Sequence[tuple[str, Standing]]) -> str:
    shown = ", ".join(f"{name} ({_ratio(standing)})" for name, standing in named[:MOST])
    return shown + (f" and {len(named) - MOST} more" if len(named) > MOST else "")


def _ratio(standing: Standing) -> str:
    """
    >>> _ratio(Standing(100.0, 45.0, 0.5)), _ratio(Standing(0.0, 0.0, 0.0))
    ('used 45% of its due', 'no share')
    """
    if standing.share <= 0:
        return "no share"
    if standing.entitlement <= 0:
        return "new"
    return f"used {percent(round(standing.ratio, 2))} of its due"


def _owed(known: Known, path: str) -> list[str]:
    share = known.ranking.tree.nodes[path].effective
    if share == 0:
        return ["Its share is 0: it is owed nothing, goes after everybody, and nobody ever yields to it."]
    if known.capacity is None:
        return [f"Its share is {percent(share)} of the cluster; how many GPUs that is, is not known yet."]
    gpus = share * known.capacity
    return [
        f"Of the {known.capacity:g} GPUs in service its share is {gpus:.3g}: {gpu_hours(gpus * HOUR * 24)} GPU-hours a "
        "day. It may use more while others want less, and pays that back within the lookback."
    ]


def _jobs(known: Known, path: str) -> list[str]:
    accounts = {account_key(one.account) for one in known.ranking.tree.nodes[path].walk() if one.account is not None}
    rows = [row for row in known.rows if account_key(row.job.account) in accounts]
    return _job_sentences(known, rows, "It has")


def _job_sentences(known: Known, rows: Sequence[QueueRow], who: str) -> list[str]:
    charged = [row for row in rows if row.job.holding and row.charged]
    free = [row for row in rows if row.job.holding and not row.charged]
    waiting = [row for row in rows if row.job.pending]
    told = [
        f"{who} {_count(charged)} running under contract, {_count(free)} running unallocated, "
        f"{_count(waiting)} waiting."
    ]
    protected = sorted(
        (
            (row.protected_until, row)
            for row in charged
            if row.protected_until and row.protected_until > known.basis.now
        ),
        key=lambda pair: (pair[0], pair[1].job.job_id),
    )
    if protected:
        named = [f"{row.job.label} ({row.job.user}) until {moment(until)}" for until, row in protected]
        told.append(f"Protected: {_few(named)}.")
    bare = [row.job.label for row in charged if row.may_yield]
    if bare:
        told.append(f"Past its minimum runtime, so it may yield: {_few(bare)}.")
    if waiting:
        first = min(waiting, key=lambda row: row.position or 0)
        told.append(
            f"First of it in the queue is {_job(first)}, number {first.position} of "
            f"{sum(1 for row in known.rows if row.job.pending)}; Slurm's reason: {first.job.reason or 'none yet'}."
        )
    return told


def _count(rows: Sequence[QueueRow]) -> str:
    gpus = sum(row.job.wanted.gpu_count * (row.job.array_size if row.job.pending else 1) for row in rows)
    return f"{len(rows)} {_plural(len(rows), 'job')} ({_gpus(gpus)})" if rows else "none"


def _few(words: Sequence[str]) -> str:
    return ", ".join(words[:MOST]) + (f" and {len(words) - MOST} more" if len(words) > MOST else "")


def _job(row: QueueRow) -> str:
    terms = contract_words(row.job.contract, row.charged)
    return f"job {row.job.label} of {row.job.user} ({_gpus(row.job.wanted.gpu_count)}, {terms})"


def _gpus(count: int) -> str:
    return f"{count} {_plural(count, 'GPU')}"


def _pass_about(known: Known, path: str) -> list[str]:
    """Who would go first: what a pass decides about this node's jobs, on either side."""
    waiting = [row for row in known.rows if row.job.pending]
    told = []
    if waiting:
        told.append(f"Slurm takes next: {_few([f'{row.job.label} ({row.job.account})' for row in waiting])}.")
    if known.passed is None:
        return [*told, "Who would yield to whom is not known: the picture of the queue is too old."]
    mine = [one for one in known.passed.decisions if _concerns(one, path)]
    if not mine:
        return [*told, "As things stand nobody has to yield to it, and none of its runs has to yield."]
    return [*told, *(_decision_sentence(one) for one in mine)]


def _concerns(decision: Decision, path: str) -> bool:
    sides = [decision.victim, *([decision.preemptor] if decision.preemptor else [])]
    return any(side.leaf == path or side.leaf.startswith(f"{path}/") for side in sides)


def _decision_sentence(decision: Decision) -> str:
    victim, taker = decision.victim, decision.preemptor
    if taker is None:
        return f"Job {victim.label} ({victim.account}) yields to a drain of its node."
    return (
        f"As things stand job {victim.label} ({victim.account}) yields to job {taker.label} ({taker.account}). "
        f"{why_report.because(decision)}"
    )


def _for_job(known: Known, row: QueueRow) -> list[str]:
    """Who would yield to it, or it to whom, or why nobody does."""
    if known.passed is None:
        return ["Who would yield to whom is not known: the picture of the queue is too old."]
    number = row.job.job_id
    mine = [
        one
        for one in known.passed.decisions
        if number in (one.victim.job_id, one.preemptor.job_id if one.preemptor else 0)
    ]
    if mine:
        return [_decision_sentence(one) for one in mine]
    declined = next((one for one in known.passed.declined if one.job_id == number), None)
    if declined is not None:
        return [f"Nobody yields to it now: {_words(declined)}."]
    if row.job.pending:
        return ["It is not among the first of the queue, for which somebody may have to yield."]
    return ["As things stand it has to yield to nobody."]


def _words(declined: Declined) -> str:
    return declined.words.rstrip(".")


def _turning(known: Known, path: str) -> list[str]:
    found = known.turns.get(path)
    if found is None:
        return []
    told = "If nothing changes (all that runs goes on, nothing else starts): "
    parts = [*_side_turn(known, path, found.side), *_rank_turn(known, path, found.rank)]
    return [told + ("; ".join(parts) if parts else "it stands as now for a week at least") + "."]


def _side_turn(known: Known, path: str, turn: Turn | None) -> list[str]:
    if turn is None:
        return []
    now_over = known.ranking.standings[path].over_target
    side = "no longer over target" if now_over else "over target"
    return [f"it is {side} by {_when(known, turn)}"]


def _rank_turn(known: Known, path: str, turn: Turn | None) -> list[str]:
    node = known.ranking.tree.nodes[path]
    leaf = known.ranking.leaf(node.account) if node.account else None
    if turn is None or turn.rank is None or leaf is None:
        return []
    way = "up" if turn.rank < leaf.rank else "down"
    return [f"its rank goes {way} from {leaf.rank} to {turn.rank} by {_when(known, turn)}"]


def _when(known: Known, turn: Turn) -> str:
    ahead = (turn.at - known.basis.at).total_seconds()
    return f"{moment(turn.at)[:16]}Z (in about {duration(ahead)}, then at {_share(turn.ratio)} of its due)"


def _share(ratio: float) -> str:
    return "used without any" if math.isinf(ratio) else percent(round(ratio, 2))


# --- for programs -----------------------------------------------------------------------------------


def facts(known: Known, asked: str, kind: str, paths: Collection[str], told: Sequence[Sequence[str]]) -> dict[str, Any]:
    """The same as values."""
    return {
        "asked": asked,
        "kind": kind,
        **known.basis.facts(),
        "capacity_gpus": known.capacity,
        "nodes": [_node_facts(known, path) for path in paths],
        "sentences": [sentence for paragraph in told for sentence in paragraph],
    }


def _node_facts(known: Known, path: str) -> dict[str, Any]:
    node = known.ranking.tree.nodes[path]
    leaf = known.ranking.leaf(node.account) if node.account else None
    found = known.turns.get(path, Turns(None, None))
    return {
        "path": path,
        "account": node.account,
        "rank": leaf.rank if leaf else None,
        "levels": [
            {
                "path": level.node.path,
                "of_level": level.of_parent,
                "of_cluster": level.node.effective,
                "entitled_gpu_hours": level.standing.entitlement / HOUR,
                "used_gpu_hours": level.standing.usage / HOUR,
                "ratio": level.standing.ratio,
                "place": level.place,
                "siblings": level.siblings,
            }
            for level in levels(known.ranking, path)
        ],
        "turns": {"side": _turn_facts(found.side), "rank": _turn_facts(found.rank)},
    }


def _turn_facts(turn: Turn | None) -> dict[str, Any] | None:
    return None if turn is None else {"at": turn.at, "ratio": turn.ratio, "rank": turn.rank}
