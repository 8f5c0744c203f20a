"""One rebalance pass: look, decide, record, then carry out. A decision is recorded before anything is done."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from slurm_fairshare.config import Config
from slurm_fairshare.core.booking import Booking
from slurm_fairshare.core.cluster import RUNNING, Job, Picture
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded, in_words
from slurm_fairshare.core.drain import being_emptied, drain
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.guarding import opened, planned_nodes, wanted
from slurm_fairshare.core.rebalance import Declined, Pass, Why, dry, rebalance
from slurm_fairshare.core.sessions import ending_words, warnings
from slurm_fairshare.daemon.booking import book, booked_now
from slurm_fairshare.daemon.clocks import compare
from slurm_fairshare.daemon.ports import Notes, Slurm, Store
from slurm_fairshare.errors import SlurmRefused, StaleData
from slurm_fairshare.units import moment

MEMORY = timedelta(hours=1)
"""How far back decisions are looked at: the rates are per hour."""

DECLINED = "declined"
"""The name under which the last reason of each waiting job is remembered."""

WARNED = "sessions warned"
KEEP_DECLINED = 300
KEEP_DECLINED_FOR = timedelta(days=1)
RENEW = timedelta(minutes=1)
"""An unchanged set of reasons is written again this often, so that its age tells whether passes go on."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass decided and what became of it."""

    at: datetime
    recorded: tuple[Recorded, ...]
    declined: tuple[Declined, ...]
    warned: tuple[int, ...] = ()
    unheard: str = ""
    """Why a session could not be told something."""
    unbooked: str = ""
    """Why nodes could not be kept for a job, or given back."""


def rebalance_pass(slurm: Slurm, store: Store, config: Config, now: datetime, *, dry_run: bool = False) -> PassReport:
    """Decide who yields and carry it out, together with what an earlier pass left open."""
    begun = time.monotonic()
    recent = store.decisions(now - max(MEMORY, config.rebalance.cooldown))
    last = store.last_ranking()
    if last is None:
        raise StaleData("no tick has been recorded yet; run `slurm-fairshare tick` (or the daemon) first")
    picture = slurm.picture(now)
    there = booked_now(slurm, store, config)
    picture = opened(picture, there, now)
    found = _decide(slurm, config, picture, last, recent, there, now)
    if dry_run:
        shown = tuple(Recorded(dry(one), Outcome.DECIDED, now) for one in found.decisions)
        return PassReport(now, shown, found.declined)
    waiting = [one for one in recent if one.outcome in OPEN and not one.decision.dry_run]
    sessions = any(not job.batch for job in picture.holding)
    theirs = compare(slurm, config, now, begun)[0] if waiting or found.decisions or sessions else now
    store.decide(found.decisions)
    remember_declined(store, found, now)
    waiting += [Recorded(one, Outcome.DECIDED, now) for one in found.decisions]
    acts = _Acts(slurm, config, picture, now, theirs, store, begun)
    rules, made = config.rules, found.decisions
    bookings = wanted(picture, last[1], config.ladder, config.lane, rules, there, made, recent, now)
    unbooked = book(slurm, store, there, bookings, acts.may_change, now)
    done = tuple(_advance(acts, store, one) for one in waiting)
    warned = _warn_sessions(acts, store)
    return PassReport(now, done, found.declined, warned, acts.unheard, unbooked)


def _decide(
    slurm: Slurm,
    config: Config,
    picture: Picture,
    last: tuple[datetime, Ranking],
    recent: tuple[Recorded, ...],
    there: tuple[Booking, ...],
    now: datetime,
) -> Pass:
    """Drains first: what they stop leaves for nobody, and is not stopped twice.

    Only where somebody is to be stopped at all are the jobs asked when they saved last, and it is decided anew.
    """
    ranked_at, ranking = last
    ladder, rules, planned = config.ladder, config.rules, planned_nodes(there)

    def both(seen: Picture) -> Pass:
        emptied = being_emptied(seen.nodes, every=config.rebalance.empty_drained)
        drained = drain(seen, emptied, ranking, ladder, rules, recent, now) if emptied else ()
        leaving = [(one.victim.job_id, one.started) for one in drained]
        found = rebalance(seen, ranking, ranked_at, ladder, config.lane, rules, recent, now, leaving, planned)
        return Pass((*drained, *found.decisions), found.declined)

    found = both(picture)
    saved = slurm.checkpoints() if found.decisions else {}
    return both(_with_checkpoints(picture, saved)) if saved else found


def _with_checkpoints(picture: Picture, saved: Any) -> Picture:
    jobs = (replace(job, checkpoint=saved[job.job_id]) if job.job_id in saved else job for job in picture.jobs)
    return replace(picture, jobs=tuple(jobs))


def remember_declined(store: Notes, result: Pass, now: datetime) -> None:
    """Keep the last reason of each waiting job, so that `why` can tell it. Unallocated work needs no telling; where
    somebody was stopped for a job, its reason is out of date."""
    told = (one for one in result.declined if one.why is not Why.UNALLOCATED)
    new = {str(one.job_id): [one.why.value, one.words, moment(now)] for one in told}
    found = store.recall(DECLINED)
    at, before = found if found is not None else (now, {})
    oldest = moment(now - KEEP_DECLINED_FOR)
    served = {str(one.preemptor.job_id) for one in result.decisions if one.preemptor is not None}
    old = {job: words for job, words in before.items() if job not in served}
    kept = {job: words for job, words in old.items() if job not in new and words[2] >= oldest}
    same = {job: words[:2] for job, words in new.items()} == {job: old[job][:2] for job in new if job in old}
    if same and kept.keys() | new.keys() == before.keys() and now - at < RENEW:
        return
    newest = sorted({**kept, **new}.items(), key=lambda item: item[1][2], reverse=True)[:KEEP_DECLINED]
    store.remember(DECLINED, dict(newest), now)


@dataclass
class _Acts:
    """What one pass does to jobs, and what it has found out on the way."""

    slurm: Slurm
    config: Config
    picture: Picture
    now: datetime
    theirs: datetime
    """slurmctld's clock: by this one, too, a minimum runtime has to be over."""
    store: Store
    begun: float
    unheard: str = ""

    def __post_init__(self) -> None:
        self._waits: dict[int, bool] = {}

    def may_change(self) -> None:
        """Asked right before each change: whether this daemon still leads, and still knows what it decided on."""
        self.store.assure_lead()
        age, limit = time.monotonic() - self.begun, self.config.rebalance.max_age.total_seconds()
        if age > limit:
            raise StaleData(
                f"what this pass saw is {age:.0f} s old, more than the {limit:.0f} s of rebalance.max_age; nobody is "
                "stopped on it (is slurmctld slow?)"
            )

    def next(self, one: Recorded) -> tuple[Outcome, str]:
        """Take one open decision a step further, on the very run it was taken on."""
        decision, notice = one.decision, self.config.rebalance.notice
        if self.now - one.changed > notice + self.config.rebalance.max_age:
            return Outcome.LAPSED, "nobody carried it out in time"
        if one.outcome is Outcome.NOTICED and self.now - one.changed < notice:
            return Outcome.NOTICED, ""
        if self.theirs < decision.started + timedelta(seconds=decision.min_runtime):
            return one.outcome, ""
        job = self.slurm.job(decision.victim.job_id)
        over = _over(job, decision, self.now)
        if over is not None:
            return over
        if decision.at < self.now and not self._preemptor_waits(decision):
            assert decision.preemptor is not None  # noqa: S101  a drain has nobody who waits
            return Outcome.LAPSED, f"job {decision.preemptor.label} does not wait any more, so nobody need yield to it"
        assert job is not None  # noqa: S101  _over has looked
        try:
            if one.outcome is Outcome.DECIDED and self._notified(job, decision):
                return Outcome.NOTICED, f"sent {decision.notice}" if decision.notice else "told that it ends"
            return self._stop(job, decision)
        except SlurmRefused as error:
            return Outcome.REFUSED, str(error)

    def _preemptor_waits(self, decision: Decision) -> bool:
        taker = decision.preemptor
        if taker is None:
            return True
        if taker.job_id not in self._waits:
            job = self.slurm.job(taker.job_id)
            self._waits[taker.job_id] = job is not None and job.pending
        return self._waits[taker.job_id]

    def _notified(self, job: Job, decision: Decision) -> bool:
        """Whether it was given time: a job that asked for a signal, and a session, whose user reads a line."""
        if not job.batch:
            self.tell(job.job_id, self._ending(decision))
        if decision.notice:
            self.may_change()
            self.slurm.notice(job.job_id, decision.notice)
        return bool(decision.notice) or not job.batch

    def _ending(self, decision: Decision) -> str:
        taker, seconds = decision.preemptor, self.config.rebalance.notice.total_seconds()
        if taker is None:
            return f"fairshare: this node is being drained; this session ends in {seconds:.0f} s. Save your work now"
        return ending_words(taker.label, taker.user, taker.account, seconds)

    def tell(self, job_id: int, words: str) -> None:
        """Words are a courtesy: where they may not be said, that is reported and the pass goes on."""
        try:
            self.slurm.tell(job_id, words)
        except SlurmRefused as error:
            self.unheard = str(error)

    def _stop(self, job: Job, decision: Decision) -> tuple[Outcome, str]:
        """As the job is now: its owner may have changed whether it can be requeued since it was decided on."""
        requeue = job.batch and job.requeueable
        if not requeue and (job.contract is None or job.contract.resumable):
            return Outcome.REFUSED, "it says that it resumes, and can no longer be requeued: it is not ended"
        self.may_change()
        self.slurm.note(job.job_id, in_words(replace(decision, requeue=requeue)))
        again = _over(self.slurm.job(decision.victim.job_id), decision, self.now)
        if again is not None:
            return again
        self.may_change()
        if requeue:
            self.slurm.requeue(job.job_id)
            return Outcome.REQUEUED, ""
        self.slurm.end(job.job_id)
        return Outcome.ENDED, ""


def _advance(acts: _Acts, store: Store, one: Recorded) -> Recorded:
    """Take one open decision a step further and record what came of it."""
    acts.may_change()
    outcome, detail = acts.next(one)
    if outcome is one.outcome:
        return one
    store.settle(one.decision.id, outcome, acts.now, detail)
    return Recorded(one.decision, outcome, acts.now, detail)


def _over(job: Job | None, decision: Decision, now: datetime) -> tuple[Outcome, str] | None:
    """Why the run that was decided on must be left alone; None if it is there, and still past its minimum.

    A run is its start, not its job's number.
    """
    if job is None:
        return Outcome.GONE, "the job is no longer known to Slurm"
    if job.start != decision.started or job.state != RUNNING:
        since = f" since {job.start}" if job.start else ""
        return Outcome.GONE, f"that run is over: the job is {job.state}{since}"
    promised = job.contract.min_runtime if job.contract is not None else 0
    until = decision.started + timedelta(seconds=max(promised, decision.min_runtime))
    if now < until:
        return Outcome.LAPSED, f"its contract was changed: it is protected until {moment(until)}"
    return None


def _warn_sessions(acts: _Acts, store: Notes) -> tuple[int, ...]:
    """Tell sessions that their protection ends soon, each once a run."""
    config, now = acts.config, acts.now
    sessions = [job for job in acts.picture.holding if not job.batch]
    if not sessions:
        return ()
    found = store.recall(WARNED)
    warned: dict[str, str] = found[1] if found is not None else {}
    todo = warnings(sessions, config.ladder, config.rules, config.rebalance.warn_sessions, warned.keys(), now)
    for one in todo:
        acts.tell(one.job_id, one.words)
    if todo:
        there = {f"{job.job_id}-{int(job.start.timestamp())}" for job in sessions if job.start is not None}
        kept = {key: at for key, at in warned.items() if key in there}
        store.remember(WARNED, {**kept, **{one.key: moment(now) for one in todo}}, now)
    return tuple(one.job_id for one in todo)
