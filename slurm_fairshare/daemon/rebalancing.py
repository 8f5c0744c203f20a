"""One rebalance pass: look, decide, record, then carry out. A decision is recorded before anything is done."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import RUNNING, Job
from slurm_fairshare.core.decisions import OPEN, Decision, Outcome, Recorded, in_words
from slurm_fairshare.core.rebalance import Declined, Pass, dry, rebalance
from slurm_fairshare.daemon.ports import Slurm, Store
from slurm_fairshare.errors import SlurmRefused, StaleData

MEMORY = timedelta(hours=1)
"""How far back decisions are looked at: the rates are per hour."""


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass decided and what became of it."""

    at: datetime
    recorded: tuple[Recorded, ...]
    declined: tuple[Declined, ...]


def rebalance_pass(slurm: Slurm, store: Store, config: Config, now: datetime, *, dry_run: bool = False) -> PassReport:
    """Decide who yields and carry it out, together with what an earlier pass left open."""
    recent = store.decisions(now - max(MEMORY, config.rebalance.cooldown))
    found = _decide(slurm, store, config, now, recent)
    if dry_run:
        shown = tuple(Recorded(dry(one), Outcome.DECIDED, now) for one in found.decisions)
        return PassReport(now, shown, found.declined)
    store.decide(found.decisions)
    waiting = [one for one in recent if one.outcome in OPEN]
    waiting += [Recorded(one, Outcome.DECIDED, now) for one in found.decisions]
    done = tuple(_advance(slurm, store, config, now, one) for one in waiting)
    return PassReport(now, done, found.declined)


def _decide(slurm: Slurm, store: Store, config: Config, now: datetime, recent: tuple[Recorded, ...]) -> Pass:
    last = store.last_ranking()
    if last is None:
        raise StaleData("no tick has been recorded yet; run `slurm-fairshare tick` (or the daemon) first")
    ranked_at, ranking = last
    picture = slurm.picture(now)
    return rebalance(picture, ranking, ranked_at, config.ladder, config.lane, config.rules, recent, now)


def _advance(slurm: Slurm, store: Store, config: Config, now: datetime, one: Recorded) -> Recorded:
    """Take one open decision a step further and record what came of it."""
    store.assure_lead()
    outcome, detail = _next(slurm, config, now, one)
    if outcome is one.outcome:
        return one
    store.settle(one.decision.id, outcome, now, detail)
    return Recorded(one.decision, outcome, now, detail)


def _next(slurm: Slurm, config: Config, now: datetime, one: Recorded) -> tuple[Outcome, str]:
    decision = one.decision
    if now - one.changed > config.rebalance.notice + config.rebalance.max_age:
        return Outcome.LAPSED, "nobody carried it out in time"
    if one.outcome is Outcome.NOTICED and now - one.changed < config.rebalance.notice:
        return Outcome.NOTICED, ""
    job = slurm.job(decision.victim.job_id)
    gone = _gone(job, decision)
    if gone:
        return Outcome.GONE, gone
    try:
        if decision.notice and one.outcome is Outcome.DECIDED:
            slurm.notice(decision.victim.job_id, decision.notice)
            return Outcome.NOTICED, f"sent {decision.notice}"
        return _stop(slurm, decision)
    except SlurmRefused as error:
        return Outcome.REFUSED, str(error)


def _gone(job: Job | None, decision: Decision) -> str:
    """Why the run that was decided on is no longer there; "" if it is. A run is its start, not its job's number."""
    if job is None:
        return "the job is no longer known to Slurm"
    if job.start != decision.started or job.state != RUNNING:
        return f"that run is over: the job is {job.state}" + (f" since {job.start}" if job.start else "")
    return ""


def _stop(slurm: Slurm, decision: Decision) -> tuple[Outcome, str]:
    slurm.note(decision.victim.job_id, in_words(decision))
    if decision.requeue:
        slurm.requeue(decision.victim.job_id)
        return Outcome.REQUEUED, ""
    slurm.end(decision.victim.job_id)
    return Outcome.ENDED, ""
