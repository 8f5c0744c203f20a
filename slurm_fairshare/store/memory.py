"""A twin of the Postgres store, in memory: for tests, dry runs and the simulator. The same answers, nothing kept."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from slurm_fairshare.core.audit import Basis, Counted, counted
from slurm_fairshare.core.capacity import PastStep
from slurm_fairshare.core.cluster import Capacity, Job, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded
from slurm_fairshare.core.demand import demand
from slurm_fairshare.core.edits import check_addition
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.plan import describe
from slurm_fairshare.core.records import Batch, TickReport, newest
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import Run
from slurm_fairshare.core.tree import Changeset, account_key
from slurm_fairshare.core.window import Step, Weight, Window, milli_gpu_seconds, overlap_seconds
from slurm_fairshare.errors import NotLeading, StoreError
from slurm_fairshare.store.breakdown import Used
from slurm_fairshare.store.budgets import Sets
from slurm_fairshare.store.facts import Adjustment, Failure, Holding, ManagerChange, Rejected, TickFacts
from slurm_fairshare.store.journal import KEEP_HOURLY, KEEP_TICKS, pushed_labels
from slurm_fairshare.store.tallies import Tallies
from slurm_fairshare.store.weighing import USER_MARK, Charges, adjust, by_user, capacity_steps, parts, weigh

RESIZING = "RESIZING"
"""State of the closed part of a job that goes on with another size."""


@dataclass(frozen=True, slots=True)
class _Kept:
    run: Run
    recorded: datetime


@dataclass(frozen=True, slots=True)
class _Sighting:
    """A job that has left the picture, and when it was last in it."""

    run: Run
    last_seen: datetime


class MemoryStore:
    """Implements the Store port; see PostgresStore for what each method promises."""

    def __init__(self, cluster: str, rule: ChargeRule | None = None, ladder: Ladder | None = None) -> None:
        self.cluster, self.rule, self.ladder = cluster, rule or ChargeRule(), ladder or Ladder.default()
        self._runs: dict[str, _Kept] = {}
        self._rejected: dict[tuple[str, str], Rejected] = {}
        self._read: Window | None = None
        self._picture: Picture | None = None
        self._prices: dict[str, object] | None = None
        self._sightings: dict[tuple[int, datetime], _Sighting] = {}
        self._capacity: dict[str, dict[datetime, Capacity]] = {}
        self._demand: dict[str, dict[datetime, float]] = {}
        self._busy: dict[str, float] = {}
        self._adjustments: list[Adjustment] = []
        self._facts: dict[str, tuple[datetime, Any]] = {}
        self._changesets: list[Changeset] = []
        self._managers: list[ManagerChange] = []
        self._ticks: dict[datetime, TickReport] = {}
        self._hourly: set[datetime] = set()
        self._labels: dict[datetime, dict[str, int]] = {}
        self._failures: dict[tuple[datetime, str], Failure] = {}
        self._decisions: dict[str, Recorded] = {}
        self._outcomes: dict[str, dict[tuple[datetime, Outcome], str]] = {}
        self._led = False
        self._fenced = False

    def close(self) -> None:
        """Nothing to close."""

    # --- runs -------------------------------------------------------------------------------------

    def record_runs(self, batch: Batch, now: datetime) -> None:
        others = sorted({run.cluster for run in batch.runs} - {self.cluster})
        if others:
            raise StoreError(
                f"accounting gave runs of cluster {', '.join(others)}, but this ledger is for {self.cluster}: "
                "set `cluster` to Slurm's ClusterName as sacct prints it"
            )
        for run in newest(batch.runs):
            old = self._runs.get(run.key)
            if old is None or (old.recorded <= now and old.run != run):
                self._runs[run.key] = _Kept(run, now)
        for row in batch.rejected:
            self._rejected.setdefault((row.source, row.text), Rejected(row, now))
        self._read = batch.window if self._read is None else _joined(self._read, batch.window)

    def watermark(self) -> datetime | None:
        return None if self._read is None else self._read.end

    def newest_end(self) -> datetime | None:
        return max((run.end for run in self._all_runs() if run.end is not None), default=None)

    def runs(self, window: Window, state: str | None = None) -> tuple[Run, ...]:
        found = [
            run
            for run in self._all_runs()
            if run.start is not None and run.start < window.end and (run.end is None or run.end > window.start)
            if state is None or run.state == state
        ]
        return tuple(sorted(found, key=lambda run: (run.start, run.key)))

    def runs_of(self, job_id: int) -> tuple[Run, ...]:
        found = [run for run in self._all_runs() if run.job_id == job_id]
        return tuple(sorted(found, key=lambda run: (run.submit, run.start is None, run.start, run.key)))

    def rejected(self, since: datetime) -> tuple[Rejected, ...]:
        found = [one for one in self._rejected.values() if one.first >= since]
        return tuple(sorted(found, key=lambda one: one.first))

    def _all_runs(self) -> list[Run]:
        return [kept.run for kept in self._runs.values()]

    # --- the picture ------------------------------------------------------------------------------

    def record_picture(self, picture: Picture, capacity: Sequence[Capacity]) -> None:
        kinds = {one.kind for one in capacity}
        known = {kind for kind, steps in self._capacity.items() if min(steps) <= picture.at}
        gone = [Capacity(kind, 0, 0, 0, 0) for kind in sorted(known - kinds)]
        for one in (*capacity, *gone):
            self._capacity_step(one, picture.at)
        if self._picture is None or self._picture.at <= picture.at:
            self._record_demand(picture)
            self._replace(picture)
            self._reprice(picture)

    def _record_demand(self, picture: Picture) -> None:
        seen = demand(picture, self.ladder, self.rule)
        for account in sorted(self._demand.keys() | seen.keys()):
            steps = self._demand.setdefault(account, {})
            before = max((at for at in steps if at <= picture.at), default=None)
            if before is None or steps[before] != seen.get(account, 0.0):
                steps[picture.at] = seen.get(account, 0.0)

    def _reprice(self, picture: Picture) -> None:
        prices = self.rule.spelt(picture.whole)
        if prices == self._prices or (self.rule.dominant and not picture.nodes):
            return
        self._prices = prices
        for key, kept in self._runs.items():
            milli = self.rule.milli_gpus(kept.run.held, picture.whole)
            self._runs[key] = replace(kept, run=replace(kept.run, milli_gpus=milli))

    def _capacity_step(self, one: Capacity, at: datetime) -> None:
        steps = self._capacity.setdefault(one.kind, {})
        before = max((known for known in steps if known <= at), default=None)
        if before is None or steps[before] != one:
            steps[at] = one

    def _replace(self, picture: Picture) -> None:
        alive = {(job.job_id, job.start) for job in picture.jobs if job.holding}
        before = self._picture
        if before is not None and before.at < picture.at:
            for run in self._shown(before):
                if run.start is not None and (run.job_id, run.start) not in alive:
                    self._sightings[run.job_id, run.start] = _Sighting(run, before.at)
        closed = [run for run in self._all_runs() if run.end is not None and run.state != RESIZING]
        self._sightings = {
            key: seen
            for key, seen in self._sightings.items()
            if key not in alive and not any(_of(run, *key) for run in closed)
        }
        self._picture = picture

    def _shown(self, picture: Picture) -> Iterator[Run]:
        """Jobs that hold GPUs in the picture, as runs without an end."""
        whole = Resources()
        for node in picture.nodes:
            whole = whole.plus(node.total)
        for job in picture.jobs:
            if job.holding and job.start is not None:
                yield self._run_of(job, whole)

    def _run_of(self, job: Job, whole: Resources) -> Run:
        return Run(
            cluster=self.cluster,
            key="",
            job_id=job.job_id,
            label=job.label,
            account=job.account,
            user=job.user,
            uid=job.uid,
            partition=",".join(job.partitions),
            qos=job.qos,
            state=job.state,
            submit=job.submit,
            eligible=job.eligible,
            start=job.start,
            end=None,
            held=job.wanted,
            milli_gpus=self.rule.milli_gpus(job.wanted, whole),
            charged=self.ladder.is_charged(job.qos),
            contract=job.contract,
        )

    def latest_queue(self) -> Picture | None:
        if self._picture is None:
            return None
        jobs = sorted(self._picture.jobs, key=lambda job: (job.job_id, job.label))
        nodes = sorted(self._picture.nodes, key=lambda node: node.name)
        return replace(self._picture, jobs=tuple(jobs), nodes=tuple(nodes))

    # --- capacity ---------------------------------------------------------------------------------

    def first_capacity(self) -> datetime | None:
        return min((at for steps in self._capacity.values() for at in steps), default=None)

    def record_past(self, steps: Sequence[PastStep]) -> None:
        for at, capacity in steps:
            for one in capacity:
                self._capacity_step(one, at)

    def capacity(self, window: Window) -> tuple[Step, ...]:
        found = self.capacity_history(window)
        return capacity_steps(((at, one.kind, one.in_service) for at, one in found), window, self.rule)

    def capacity_history(self, window: Window) -> tuple[tuple[datetime, Capacity], ...]:
        found: list[tuple[datetime, Capacity]] = []
        for steps in self._capacity.values():
            first = max((at for at in steps if at <= window.start), default=None)
            found += [(at, one) for at, one in steps.items() if at < window.end and (first is None or at >= first)]
        return tuple(sorted(found, key=lambda row: (row[0], row[1].kind)))

    def demand(self, window: Window) -> Mapping[str, tuple[Step, ...]]:
        found = {}
        for account, steps in sorted(self._demand.items()):
            first = max((at for at in steps if at <= window.start), default=None)
            mine = [
                Step(max(at, window.start), gpus)
                for at, gpus in sorted(steps.items())
                if at < window.end and (first is None or at >= first)
            ]
            if mine:
                found[account] = tuple(mine)
        return found

    # --- usage ------------------------------------------------------------------------------------

    def usage(self, window: Window, weight: Weight, now: datetime) -> Mapping[str, float]:
        charges = [(part, self.charges(part, now)) for part in parts(window, weight)]
        return weigh(adjust(charges, self._adjustments, now), weight, now)

    def usage_by_user(self, window: Window, weight: Weight, now: datetime) -> Mapping[tuple[str, str], float]:
        cut = parts(window, weight)
        return by_user(weigh([(part, self._charges_by_user(part, now)) for part in cut], weight, now))

    def _charges_by_user(self, window: Window, now: datetime) -> Charges:
        found: Charges = {}
        for run in self._counted():
            amount = milli_gpu_seconds([run], window, now) if run.charged else 0
            if amount:
                key = f"{account_key(run.account)}{USER_MARK}{run.user}"
                found[key] = found.get(key, 0) + amount
        return found

    def charges(self, window: Window, now: datetime) -> Charges:
        accounts: dict[str, list[Run]] = {}
        for run in self._counted():
            if run.charged:
                accounts.setdefault(account_key(run.account), []).append(run)
        found = {account: milli_gpu_seconds(runs, window, now) for account, runs in accounts.items()}
        return {account: amount for account, amount in found.items() if amount}

    def charges_by_hour(self, window: Window, now: datetime) -> tuple[tuple[Window, Charges], ...]:
        return tuple((hour, self.charges(hour, now)) for hour in window.hours())

    def _counted(self) -> Iterator[Run]:
        return (run for run, _ in self._counted_on())

    def _counted_on(self) -> Iterator[tuple[Run, Basis]]:
        """What each run counts and on what basis; the rule stands in words at the view fairshare.run_usage."""
        shown = [] if self._picture is None else list(self._shown(self._picture))
        known = [run for run in self._all_runs() if run.start is not None]
        for run in known:
            if run.end is not None:
                yield run, Basis.ENDED
            elif self._open_ended(run, shown):
                yield run, Basis.RUNNING
            else:
                yield self._capped(run), Basis.RUNAWAY
        for run in shown:
            parts_of_it = [old for old in known if _of(old, run.job_id, run.start)]
            if all(old.state == RESIZING for old in parts_of_it):
                ends = [old.end for old in parts_of_it if old.end is not None]
                yield replace(run, start=max([*ends, *([run.start] if run.start else [])])), Basis.QUEUE
        for (job_id, start), seen in self._sightings.items():
            if not any(_of(old, job_id, start) for old in known):
                yield replace(seen.run, end=seen.last_seen), Basis.SIGHTING

    def counted(self, window: Window, now: datetime) -> tuple[Counted, ...]:
        found = []
        for run, basis in self._counted_on():
            one = counted(run)
            reaches = one is not None and one.start < window.end and (one.until or now) > window.start
            if one is not None and reaches:
                found.append(replace(one, basis=basis, state="" if not one.key else one.state))
        return tuple(sorted(found, key=lambda one: (one.start, one.job_id, one.key)))

    def used(self, parts: Sequence[Window], by: Collection[str], now: datetime) -> tuple[Used, ...]:
        groups: dict[tuple[int, str, str, str, str, bool], list[int]] = {}
        for run in self._counted():
            for index, part in enumerate(parts):
                seconds = overlap_seconds(run, part, now)
                for kind, gpus in (run.held.gpus if "type" in by else {"": run.held.gpu_count}).items():
                    if seconds and (gpus or run.milli_gpus):
                        key = (index, *_grouped(run, by), kind, run.charged)
                        sums = groups.setdefault(key, [0, 0, 0])
                        sums[0] += gpus * seconds
                        sums[1] += run.milli_gpus * seconds
                        sums[2] += 1
        return tuple(
            Used(parts[key[0]], *key[1:], sums[0], None if "type" in by else sums[1], sums[2])
            for key, sums in sorted(groups.items())
        )

    def _open_ended(self, run: Run, shown: Iterable[Run]) -> bool:
        """Whether a run without an end goes on: the picture shows it alive, or cannot know it yet."""
        if self._picture is None or (run.start is not None and run.start > self._picture.at):
            return True
        return any(_of(run, job.job_id, job.start) for job in shown)

    def _capped(self, run: Run) -> Run:
        ends = [seen.last_seen for (job_id, start), seen in self._sightings.items() if _of(run, job_id, start)]
        return replace(run, end=max([*ends, *([run.start] if run.start else [])]))

    def holdings(self, window: Window, now: datetime) -> tuple[Holding, ...]:
        sums: dict[tuple[str, str, bool], list[int]] = {}
        for run in self._counted():
            seconds = overlap_seconds(run, window, now)
            if seconds and run.held.gpu_count:
                one = sums.setdefault((account_key(run.account), run.user, run.charged), [0, 0])
                one[0] += run.held.gpu_count * seconds
                one[1] += run.milli_gpus * seconds
        return tuple(Holding(*key, *sums[key]) for key in sorted(sums))

    def ticks(self, window: Window) -> tuple[datetime, ...]:
        return tuple(at for at in sorted(self._ticks) if window.start <= at < window.end)

    def record_busy(self, busy: Mapping[str, float]) -> None:
        self._busy.update(busy)

    def busy(self, window: Window) -> Mapping[str, float]:
        return {run.key: self._busy[run.key] for run in self.runs(window) if run.key in self._busy}

    def raw_charges_by_hour(self, window: Window, now: datetime) -> tuple[tuple[Window, Charges], ...]:
        return self.charges_by_hour(window, now)

    def rebuild_rollups(self) -> int:
        """There are none here: everything is summed anew each time."""
        return 0

    def differing_rollups(self) -> int:
        return 0

    # --- adjustments and facts --------------------------------------------------------------------

    def add_adjustment(
        self,
        account: str,
        milli_gpu_seconds: int,
        at: datetime,
        author: str,
        reason: str,
        expires: datetime | None = None,
    ) -> Adjustment:
        made = Adjustment(str(uuid.uuid4()), account, milli_gpu_seconds, at, author, reason, expires)
        self._adjustments.append(made)
        return made

    def adjustments(self, window: Window) -> tuple[Adjustment, ...]:
        found = [one for one in self._adjustments if window.start <= one.at < window.end]
        return tuple(sorted(found, key=lambda one: (one.at, one.id)))

    def remember(self, name: str, value: Any, at: datetime) -> None:
        self._facts[name] = (at, value)

    def recall(self, name: str) -> tuple[datetime, Any] | None:
        return self._facts.get(name)

    # --- budgets ----------------------------------------------------------------------------------

    def changesets(self) -> tuple[Changeset, ...]:
        return tuple(self._changesets)

    def add_changeset(
        self,
        author: str,
        reason: str,
        effective: datetime,
        sets: Sets,
        expected_last_id: int | None = None,
        created: datetime | None = None,
        cancels: int | None = None,
    ) -> Changeset:
        new = Changeset(
            id=len(self._changesets) + 1,
            author=author,
            reason=reason,
            created=(created or datetime.now(UTC)).astimezone(UTC),
            effective=effective.astimezone(UTC),
            sets={parent: tuple(shares) for parent, shares in sets.items()},
            cancels=cancels,
        )
        check_addition(self._changesets, new, expected_last_id)
        self._changesets.append(new)
        return new

    def manager_changes(self) -> tuple[ManagerChange, ...]:
        return tuple(self._managers)

    def change_manager(
        self, path: str, role: str, granted: bool, author: str, reason: str, at: datetime
    ) -> ManagerChange:
        self._managers.append(ManagerChange(len(self._managers) + 1, path, role, granted, author, reason, at))
        return self._managers[-1]

    def login(self) -> str | None:
        """There are no roles here."""
        return None

    def cannot_manage(self, roles: Sequence[str]) -> tuple[str, ...]:  # noqa: ARG002 - the port's name
        """Nobody logs in here, so nobody is refused."""
        return ()

    # --- counts -----------------------------------------------------------------------------------

    def tallies(self, since: datetime) -> Tallies:
        decisions = [one for one in self._decisions.values() if not one.decision.dry_run]
        return Tallies(
            failures=Counter(one.phase for one in self._failures.values()),
            decisions=Counter((one.decision.rule.value, one.outcome.value) for one in decisions),
            rejected=Counter(one.row.source for one in self._rejected.values()),
            failures_since=sum(one.at >= since for one in self._failures.values()),
            rejected_since=sum(one.first >= since for one in self._rejected.values()),
        )

    def last_picture(self) -> datetime | None:
        return self._picture.at if self._picture is not None else None

    # --- the journal ------------------------------------------------------------------------------

    @contextmanager
    def lead(self, lease: timedelta | None = None) -> Iterator[None]:  # noqa: ARG002 - no session can be idle here
        if self._led:
            raise NotLeading(
                f"another daemon leads cluster {self.cluster}; this one stands by and takes over when that one ends"
            )
        self._led, self._fenced = True, False
        try:
            yield
        finally:
            self._led, self._fenced = False, True

    def depose(self) -> None:
        """What a lost session does: the leadership is free, and who held it is fenced."""
        self._led, self._fenced = False, True

    def led(self) -> bool:
        return self._led

    def assure_lead(self) -> None:
        if self._fenced:
            raise NotLeading(f"the leadership of cluster {self.cluster} was lost; nothing more is changed in Slurm")

    def record_tick(self, report: TickReport) -> None:
        self.assure_lead()
        before = max((at for at in self._ticks if at < report.at), default=None)
        held = {} if before is None else self._labels[before]
        accounts = {account_key(leaf.account) for leaf in report.ranking.leaves}
        now = held | (pushed_labels(report.changes) if report.pushed else {})
        self._drop(report.at)
        self._labels[report.at] = {account: label for account, label in now.items() if account in accounts}
        self._ticks[report.at] = report
        if not any(_hour(at) == _hour(report.at) for at in self._hourly):
            self._hourly.add(report.at)
        self.prune(report.at)

    def prune(self, at: datetime, keep_ticks: int = KEEP_TICKS, keep_hourly: timedelta = KEEP_HOURLY) -> None:
        newest = sorted(self._ticks, reverse=True)[: max(keep_ticks, 1)]
        for old in list(self._ticks):
            if (old not in newest and old not in self._hourly) or old < at - keep_hourly:
                self._drop(old)

    def _drop(self, at: datetime) -> None:
        self._ticks.pop(at, None)
        self._labels.pop(at, None)
        self._hourly.discard(at)

    def last_ranking(self) -> tuple[datetime, Ranking] | None:
        return self.ranking_at(None)

    def ranking_at(self, at: datetime | None) -> tuple[datetime, Ranking] | None:
        newest = max((one for one in self._ticks if at is None or one <= at), default=None)
        return None if newest is None else (newest, self._ticks[newest].ranking)

    def labels(self) -> Mapping[str, int]:
        return {} if not self._ticks else dict(self._labels[max(self._ticks)])

    def last_tick(self) -> TickFacts | None:
        if not self._ticks:
            return None
        report = self._ticks[max(self._ticks)]
        return TickFacts(
            at=report.at,
            finished=report.finished,
            window=report.window,
            pushed=report.pushed,
            changes=tuple(describe(change) for change in report.changes),
            unknown_accounts=report.unknown_accounts,
            unbudgeted_accounts=report.unbudgeted_accounts,
            failures=tuple(one for one in self.failures(report.at) if one.at > report.at),
        )

    def record_failure(self, at: datetime, phase: str, error: str) -> None:
        self._failures[at, phase] = Failure(at, phase, error)

    def failures(self, since: datetime) -> tuple[Failure, ...]:
        found = [one for one in self._failures.values() if one.at >= since]
        return tuple(sorted(found, key=lambda one: (one.at, one.phase)))

    # --- decisions --------------------------------------------------------------------------------

    def decide(self, decisions: Sequence[Decision]) -> None:
        if decisions:
            self.assure_lead()
        for one in decisions:
            self._decisions.setdefault(one.id, Recorded(one, Outcome.DECIDED, one.at))
            self._outcomes.setdefault(one.id, {(one.at, Outcome.DECIDED): ""})

    def settle(self, decision_id: str, outcome: Outcome, at: datetime, detail: str = "") -> None:
        if decision_id not in self._decisions:
            raise StoreError(f"decision {decision_id} was never recorded; record it before carrying it out")
        self._decisions[decision_id] = Recorded(self._decisions[decision_id].decision, outcome, at, detail)
        self._outcomes[decision_id].setdefault((at, outcome), detail)

    def decisions(self, since: datetime) -> tuple[Recorded, ...]:
        return self._found(lambda one: one.decision.at >= since)

    def open_decisions(self) -> tuple[Recorded, ...]:
        return self._found(lambda one: one.outcome in OPEN and not one.decision.dry_run)

    def decisions_about(self, job_id: int) -> tuple[Recorded, ...]:
        return self._found(
            lambda one: (
                one.decision.victim.job_id == job_id
                or (one.decision.preemptor is not None and one.decision.preemptor.job_id == job_id)
            )
        )

    def outcomes(self, decision_id: str) -> tuple[tuple[datetime, Outcome, str], ...]:
        found = self._outcomes.get(decision_id, {})
        ordered = sorted(found.items(), key=lambda item: (item[0][0], item[0][1].value))
        return tuple((at, outcome, detail) for (at, outcome), detail in ordered)

    def _found(self, wanted: Callable[[Recorded], bool]) -> tuple[Recorded, ...]:
        found = [one for one in self._decisions.values() if wanted(one)]
        return tuple(sorted(found, key=lambda one: (one.decision.at, one.decision.id)))


def _joined(read: Window, new: Window) -> Window:
    """The stretch read without a gap."""
    start = min(read.start, new.start) if new.end >= read.start else read.start
    end = max(read.end, new.end) if new.start <= read.end else read.end
    return Window(start, end)


def _grouped(run: Run, by: Collection[str]) -> tuple[str, str, str]:
    return (
        account_key(run.account) if "account" in by else "",
        run.user if "user" in by else "",
        run.qos if "qos" in by else "",
    )


def _of(run: Run, job_id: int, start: datetime | None) -> bool:
    """Whether this is a run of the job as it started at `start`, or a later part of it."""
    return run.job_id == job_id and run.start is not None and start is not None and run.start >= start


def _hour(at: datetime) -> datetime:
    return at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
