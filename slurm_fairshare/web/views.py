"""From a reading to what a page shows. Words come from the reports, so pages and commands say the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from slurm_fairshare.config import Config
from slurm_fairshare.core.booking import reason
from slurm_fairshare.core.classes import Kind
from slurm_fairshare.core.cluster import Node as ComputeNode
from slurm_fairshare.core.cluster import Picture, capacity_of
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.drain import Emptying, being_emptied, emptying
from slurm_fairshare.core.edits import state_after
from slurm_fairshare.core.fairshare import Ranking, Standing
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import SEPARATOR, Node, account_key, parent_of, tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import BudgetError, StaleData, StoreDenied
from slurm_fairshare.reports import budgets, delivery
from slurm_fairshare.reports.budget_log import LogRow, log_rows
from slurm_fairshare.reports.explain import explain_job, explain_node
from slurm_fairshare.reports.overtime import FREE, Hour, in_service, merged, occupancy
from slurm_fairshare.reports.queue import QueueRow, contract_words
from slurm_fairshare.reports.ticks import account_notes, failure_notes
from slurm_fairshare.reports.waits import ALL, Part, wait_rows
from slurm_fairshare.reports.why import JOB, Why, decided, number_of, paragraphs, why
from slurm_fairshare.reports.words import ON_TARGET, Basis, standing_short, standing_words
from slurm_fairshare.store.facts import TickFacts
from slurm_fairshare.units import HOUR, duration, gpu_hours, percent
from slurm_fairshare.web.models import (
    BasisView,
    CapacityView,
    ChangesetLine,
    ChangesetView,
    ClusterView,
    DayView,
    DifferenceView,
    JobView,
    LevelView,
    Line,
    LogView,
    Mood,
    NodeOut,
    NodesKept,
    NodeView,
    Occupancy,
    OccupancyLine,
    QueueJob,
    QueuePage,
    RunView,
    TeamView,
    TreeView,
    WaitView,
)
from slurm_fairshare.web.reading import RECENT, Past, Reading, as_of, of_accounts, seen

POINTS = 56
"""A small line has no more points than this."""

MOST_PROTECTED = 100


class NotThere(Exception):
    """What was asked for does not exist; the message says what to do."""


# --- shared ---------------------------------------------------------------------------------------


def basis_view(basis: Basis, reading: Reading) -> BasisView:
    return BasisView(
        computed=basis.at,
        age_seconds=basis.age.total_seconds(),
        stale=basis.stale,
        lines=list(basis.lines()),
        trouble=reading.trouble,
    )


def tick_basis(tick: TickFacts, config: Config, now: datetime) -> Basis:
    return Basis(tick.at, now, config.daemon.interval, tick.window)


def past_of(reading: Reading, now: datetime) -> Past | None:
    """The weeks behind; None where nothing is known of them. StoreDenied where the viewer may not see them."""
    try:
        return reading.past(now)
    except StaleData:
        return None


def mood_of(standing: Standing | None) -> Mood:
    if standing is None or standing.share <= 0 or standing.entitlement <= 0:
        return "none"
    if abs(standing.ratio - 1) < ON_TARGET:
        return "even"
    return "over" if standing.ratio > 1 else "under"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def line_of(hours: Sequence[Hour], points: int | None = None) -> Line:
    shown = merged(hours, math.ceil(len(hours) / points)) if points and len(hours) > points else hours
    return Line(
        times=[hour.start for hour in shown],
        entitled=[round(hour.entitled, 3) for hour in shown],
        used=[round(hour.used, 3) for hour in shown],
        wanted=[round(hour.wanted, 3) for hour in shown],
    )


def _recent(past: Past, key: str) -> tuple[Hour, ...]:
    return tuple(hour for hour in past.hours.get(key, ()) if hour.start >= past.recent.start)


# --- the tree -------------------------------------------------------------------------------------


def tree_view(reading: Reading, now: datetime) -> TreeView:
    _, ranking = reading.ranking()
    basis = reading.basis(now)
    kept_back = False
    try:
        past = past_of(reading, now)
    except StoreDenied:
        past, kept_back = None, True
    tick = reading.tick
    notes = (
        (*account_notes(tick.unknown_accounts, tick.unbudgeted_accounts), *failure_notes(tick))
        if tick is not None
        else ()
    )
    return TreeView(
        basis=basis_view(basis, reading),
        leaves=len(ranking.leaves),
        nodes=[node_view(node, ranking, past, POINTS) for node in ranking.tree.nodes.values()],
        summary=delivery.summary(past.measured) if past is not None else "",
        period=list(past.measured.period.lines()) if past is not None else [],
        notes=list(notes),
        kept_back=kept_back,
    )


def node_view(node: Node, ranking: Ranking, past: Past | None, points: int | None) -> NodeView:
    standing = ranking.standings[node.path]
    level = sum(sibling.weight for sibling in ranking.tree.children_of(parent_of(node.path)))
    leaf = ranking.leaf(node.account) if node.account is not None else None
    hours = _recent(past, ranking.tree.keys[node.path]) if past is not None else ()
    return NodeView(
        path=node.path,
        name=node.name,
        depth=node.path.count(SEPARATOR),
        account=node.account,
        share=node.weight,
        of_parent=node.weight / level if level > 0 else 0.0,
        of_cluster=node.effective,
        entitled=standing.entitlement / HOUR,
        used=standing.usage / HOUR,
        ratio=_finite(standing.ratio),
        standing=standing_words(standing),
        mood=mood_of(standing),
        rank=leaf.rank if leaf is not None else None,
        line=line_of(hours, points) if hours else None,
    )


# --- the queue ------------------------------------------------------------------------------------


def queue_job(row: QueueRow, settle: timedelta) -> QueueJob:
    """`settle`: how long nodes that are kept for it wait for its start."""
    job = row.job
    until = row.protected_until
    return QueueJob(
        job=job.label,
        user=job.user,
        account=job.account,
        path=row.leaf.path if row.leaf is not None else None,
        gpus=job.wanted.gpu_count,
        contract=contract_words(job.contract, row.charged),
        priority=job.contract.priority.value if job.contract is not None else None,
        state=job.state.lower(),
        position=row.position,
        rank=row.leaf.rank if row.leaf is not None else None,
        standing=standing_short(row.leaf.standing) if row.leaf is not None else "no budget",
        mood=mood_of(row.leaf.standing if row.leaf is not None else None),
        since_seconds=row.since.total_seconds(),
        protected_until=until,
        protected=until is not None and until > row.now,
        may_yield=row.may_yield if job.holding else None,
        note=row.note(),
        kept=reason(row.booked, settle) if row.booked is not None and job.pending else None,
    )


def queue_page(reading: Reading, now: datetime, page: int, accounts: frozenset[str] | None = None) -> QueuePage:
    """NotThere beyond the last page."""
    basis = reading.queue_basis(now)
    rows = reading.rows() if accounts is None else of_accounts(reading.rows(), accounts)
    size, settle = reading.config.web.page_rows, reading.config.rebalance.settle
    pages = max(1, math.ceil(len(rows) / size))
    if page > pages:
        raise NotThere(f"The queue has {pages} pages of {size} jobs; there is no page {page}.")
    return QueuePage(
        basis=basis_view(basis, reading),
        total=len(rows),
        pending=sum(1 for row in rows if row.job.pending),
        running=sum(1 for row in rows if row.job.holding),
        page=page,
        pages=pages,
        jobs=[queue_job(row, settle) for row in as_of(rows[(page - 1) * size : page * size], now)],
    )


def queue_of(reading: Reading, now: datetime, page: int, name: str | None) -> QueuePage:
    """A page of the queue at or below a node, of everybody without one; StoreDenied where that is kept back."""
    accounts = accounts_at(reading, name)[1] if name is not None else None
    return queue_page(reading, now, page, accounts)


def accounts_at(reading: Reading, name: str) -> tuple[Node, frozenset[str]]:
    """The node of a path or of an account, and the keys of the accounts at or below it."""
    _, ranking = reading.ranking()
    node = ranking.tree.nodes.get(name.strip(SEPARATOR)) or ranking.tree.leaf_of(name)
    if node is None:
        raise NotThere(f"There is no {name!r} in the budget tree; the first page shows what there is.")
    return node, frozenset(account_key(one.account) for one in node.walk() if one.account is not None)


# --- a team ---------------------------------------------------------------------------------------


def team_view(reading: Reading, now: datetime, name: str) -> TeamView:
    node, accounts = accounts_at(reading, name)
    _, ranking = reading.ranking()
    kept_back = False
    try:
        past, rows = past_of(reading, now), of_accounts(reading.rows(), accounts)
    except StoreDenied:
        past, rows, kept_back = None, (), True
    key = ranking.tree.keys[node.path]
    days = _days(past, key) if past is not None else []
    holding = as_of([row for row in rows if row.job.holding], now)
    protected = [row for row in holding if row.protected_until is not None and row.protected_until > now]
    return TeamView(
        node=node_view(node, ranking, past, POINTS),
        basis=basis_view(reading.basis(now), reading),
        accounts=[one.account for one in node.walk() if one.account is not None],
        below=[child.path for child in node.children],
        period=list(past.measured.period.lines()) if past is not None else [],
        summary=_team_summary(past, key),
        paragraphs=[] if kept_back else [part for part in explain_node(reading.known(now), node.path) if part],
        days=days,
        line=line_of(_recent(past, key)) if past is not None else None,
        waits=_waits(reading, past, accounts) if past is not None else [],
        waits_period=duration(past.recent.seconds) if past is not None else "",
        protected=[
            queue_job(row, reading.config.rebalance.settle)
            for row in sorted(protected, key=lambda row: (row.protected_until or now, row.job.job_id))
        ][:MOST_PROTECTED],
        protected_gpus=sum(row.job.wanted.gpu_count for row in protected),
        running_gpus=sum(row.job.wanted.gpu_count for row in holding),
        waiting_gpus=sum(row.job.wanted.gpu_count * row.job.array_size for row in rows if row.job.pending),
        kept_back=kept_back,
    )


def _days(past: Past, key: str) -> list[DayView]:
    return [
        DayView(
            day=day,
            entitled=made[key].entitled / HOUR,
            owed=made[key].owed / HOUR,
            used=made[key].used / HOUR,
            delivered=made[key].got / HOUR,
            fraction=made[key].delivered if made[key].owed > 0 else None,
        )
        for day, made in past.days
        if key in made
    ]


def _team_summary(past: Past | None, key: str) -> str:
    made = past.measured.deliveries.get(key) if past is not None else None
    if made is None:
        return ""
    if made.owed <= 0:
        return "Nothing was owed in this time: no jobs under contract wanted GPUs."
    return (
        f"{percent(made.delivered)} of {gpu_hours(made.owed)} GPU-hours owed were delivered "
        f"({percent(made.hourly)} hour by hour)."
    )


def _waits(reading: Reading, past: Past, accounts: frozenset[str]) -> list[WaitView]:
    mine = [wait for wait in reading.waits(past) if wait.account in accounts]
    classes = reading.config.job_classes
    about = {kind.value: classes.about(kind) for kind in Kind} | {ALL: "all of them"}
    end = max([past.recent.end, *(wait.at for wait in mine)])
    found = wait_rows(mine, [Part("", Window(past.recent.start, end))])
    return [
        WaitView(
            kind=row.kind,
            about=about[row.kind],
            jobs=row.jobs,
            p50=row.first(0.5),
            p90=row.first(0.9),
            longest=row.first(1.0),
            waiting=row.waiting,
        )
        for row in found
    ]


# --- a job ----------------------------------------------------------------------------------------


def job_view(reading: Reading, now: datetime, label: str) -> JobView:
    """NotThere for what was never seen. StoreDenied where the viewer may not see jobs."""
    if not JOB.fullmatch(label):
        raise NotThere(f"{label!r} is no job number: write 123, 123_4 or 123+1.")
    basis = reading.queue_basis(now) if reading.picture() is not None else None
    _, leaves = reading.ranked() or (None, None)
    rows = reading.rows()
    number = number_of(label, rows)
    store = reading.store
    runs, decisions = store.runs_of(number), decided(store, label, number, now)
    known = why(label, decisions, rows, len(leaves.leaves) if leaves is not None else 0, basis)
    row = as_of([known.row], now)[0] if known.row is not None else None
    if row is None and not runs and not decisions:
        raise NotThere(
            f"Job {label} is not in the queue, and accounting has no run of it that was read. "
            f"`sacct -j {label}` shows whether Slurm knows it."
        )
    last = runs[-1] if runs else None
    job = row.job if row is not None else None
    told = job if job is not None else last
    account = told.account if told is not None else (decisions[-1].decision.victim.account if decisions else None)
    leaf = leaves.leaf(account) if leaves is not None and account is not None else None
    charged = row.charged if row is not None else (last.charged if last is not None else False)
    contract = told.contract if told is not None else None
    return JobView(
        job=label,
        user=told.user if told is not None else None,
        account=account,
        path=leaf.path if leaf is not None else None,
        gpus=job.wanted.gpu_count if job is not None else (last.held.gpu_count if last is not None else None),
        state=told.state.lower() if told is not None else None,
        contract=contract_words(contract, charged) if told is not None else None,
        priority=_priority(contract),
        notice=contract.notice if contract is not None else None,
        now=queue_job(row, reading.config.rebalance.settle) if row is not None else None,
        paragraphs=_job_words(reading, now, replace(known, row=row)),
        runs=[run_view(run, now) for run in runs],
        basis=basis_view(basis, reading) if basis is not None else None,
    )


def _job_words(reading: Reading, now: datetime, known: Why) -> list[list[str]]:
    """As `explain` tells it where there is a ranking, else as `why` does."""
    if reading.ranked() is None:
        return paragraphs(known)
    return [part for part in explain_job(reading.known(now), known) if part]


def _priority(contract: Contract | None) -> str | None:
    return contract.priority.value if contract is not None else None


def run_view(run: Run, now: datetime) -> RunView:
    end = run.end or now
    return RunView(
        state=run.state.lower(),
        submitted=run.submit,
        started=run.start,
        ended=run.end,
        seconds=max(0.0, (end - run.start).total_seconds()) if run.start is not None else None,
        gpus=run.held.gpu_count,
        nodes=run.nodes,
        charged=run.charged,
        contract=contract_words(run.contract, run.charged),
    )


# --- the cluster ----------------------------------------------------------------------------------


def cluster_view(reading: Reading, now: datetime) -> ClusterView:
    kept_back = False
    try:
        past = past_of(reading, now)
    except StoreDenied:
        past, kept_back = None, True
    picture = seen(reading.picture)
    return ClusterView(
        basis=basis_view(reading.basis(now), reading),
        capacity=_capacity(reading, picture, now),
        levels=[
            LevelView(
                name=level.name,
                value=level.value,
                part=level.part / HOUR if level.part is not None else None,
                whole=level.whole / HOUR if level.whole is not None else None,
                about=level.about,
            )
            for level in (past.levels if past is not None else ())
        ],
        period=list(past.measured.period.lines()) if past is not None else [],
        occupancy=_occupancy(reading, past, now) if past is not None else None,
        kept=_kept(reading) if picture is not None else None,
        out=_out(reading, picture, now) if picture is not None else None,
        kept_back=kept_back,
    )


def _capacity(reading: Reading, picture: Picture | None, now: datetime) -> list[CapacityView]:
    if picture is not None:
        found = capacity_of(picture.nodes)
    else:
        history = reading.store.capacity_history(Window(now - RECENT, now))
        found = tuple({one.kind: one for _, one in history}.values())
    free = _free_by_kind(picture.nodes) if picture is not None else {}
    return [
        CapacityView(
            kind=one.kind or "GPU",
            installed=one.installed,
            in_service=one.in_service,
            allocated=one.allocated,
            free=free.get(one.kind, 0) if picture is not None else None,
            drained=one.drained,
            down=one.down,
        )
        for one in found
    ]


def _free_by_kind(nodes: Iterable[ComputeNode]) -> dict[str, int]:
    """GPUs of nodes in service that nobody holds: what is drained may still be held and is never free."""
    found: dict[str, int] = {}
    for node in nodes:
        if node.in_service:
            for kind, count in node.free.gpus.items():
                found[kind] = found.get(kind, 0) + max(0, count)
    return found


def _occupancy(reading: Reading, past: Past, now: datetime) -> Occupancy:
    hours = past.recent.hours()
    held = occupancy(past.runs, hours, now)
    tree = past.measured.tree
    teams = [
        OccupancyLine(name=leaf.path, path=leaf.path, gpus=_rounded(held.pop(account_key(leaf.account or ""))))
        for leaf in tree.leaves
        if account_key(leaf.account or "") in held
    ]
    free = held.pop(FREE, None)
    teams += [OccupancyLine(name=f"{name} (no budget)", path=None, gpus=_rounded(held[name])) for name in sorted(held)]
    if free is not None:
        teams.append(OccupancyLine(name="unallocated", path=None, gpus=_rounded(free)))
    service = in_service(reading.store.capacity_history(past.recent), hours)
    return Occupancy(times=[hour.start for hour in hours], in_service=_rounded(service), teams=teams)


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(value, 2) for value in values]


def _kept(reading: Reading) -> list[NodesKept]:
    settle = reading.config.rebalance.settle
    return [
        NodesKept(
            nodes=list(row.booked.nodes),
            job=row.job.label,
            account=row.job.account,
            kind=row.booked.kind.value,
            start=row.booked.start,
            why=reason(row.booked, settle),
        )
        for row in reading.rows()
        if row.booked is not None and row.job.pending
    ]


def _out(reading: Reading, picture: Picture, now: datetime) -> list[NodeOut]:
    config = reading.config
    out = [node for node in picture.nodes if not node.in_service]
    recent = reading.store.decisions(now - config.rebalance.cooldown)
    marked = {node.name for node in being_emptied(out, every=config.rebalance.empty_drained)}
    found = emptying(picture, out, config.ladder, config.rules, recent, now)
    return [_node_out(one, one.node.name in marked) for one in found]


def _node_out(one: Emptying, emptied: bool) -> NodeOut:
    node = one.node
    return NodeOut(
        name=node.name,
        state="down" if node.down else "drained",
        reason=node.reason,
        gpus=node.total.gpu_count,
        emptying=emptied,
        free_at=one.free_at if one.stays else None,
        stays=[f"Job {stay.job.label} of {stay.job.user} {stay.words}." for stay in one.stays],
    )


# --- the budgets ----------------------------------------------------------------------------------

LOG_ROWS = 30


def log_view(reading: Reading, now: datetime, page: int) -> LogView:
    rows = log_rows(reading.changesets, now)
    pages = max(1, math.ceil(len(rows) / LOG_ROWS))
    if page > pages:
        raise NotThere(f"The log has {pages} pages; there is no page {page}.")
    shown = rows[(page - 1) * LOG_ROWS : page * LOG_ROWS]
    return LogView(total=len(rows), page=page, pages=pages, changesets=[changeset_line(row) for row in shown])


def changeset_line(row: LogRow) -> ChangesetLine:
    change = row.change
    return ChangesetLine(
        id=change.id,
        author=change.author,
        reason=change.reason,
        recorded=change.created,
        effective=change.effective,
        state=row.state,
        words=list(row.words),
    )


def changeset_view(reading: Reading, now: datetime, wanted: int) -> ChangesetView:
    """What one edit changed: the tree as it left it beside the tree without it, both at its own moment."""
    changesets = reading.changesets
    row = next((row for row in log_rows(changesets, now) if row.change.id == wanted), None)
    if row is None:
        raise NotThere(f"There is no changeset {wanted}; the log shows those there are.")
    try:
        new, at = state_after(changesets, wanted)
    except BudgetError as error:
        raise NotThere(str(error)) from error
    old = tree_at([one for one in changesets if one.id < wanted], at)
    capacity = reading.capacity_now(now)
    return ChangesetView(
        change=changeset_line(row),
        capacity_gpus=capacity,
        differences=[_difference(one) for one in budgets.differences(old, new, capacity)],
    )


def _difference(one: budgets.Difference) -> DifferenceView:
    def of(side: budgets.BudgetRow | None, get: Callable[[budgets.BudgetRow], float | None]) -> float | None:
        return get(side) if side is not None else None

    return DifferenceView(
        path=one.path,
        kind=one.kind,
        of_parent_before=of(one.before, lambda row: row.of_parent),
        of_parent_after=of(one.after, lambda row: row.of_parent),
        of_cluster_before=of(one.before, lambda row: row.node.effective),
        of_cluster_after=of(one.after, lambda row: row.node.effective),
        hours_before=of(one.before, lambda row: row.hours),
        hours_after=of(one.after, lambda row: row.hours),
        account=one.account,
        words=one.words,
    )
