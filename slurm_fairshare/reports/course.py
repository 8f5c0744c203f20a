"""What an explanation looks at beside the ranking: how things go on from the last tick, and what a pass decides."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from slurm_fairshare.config import Config
from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.projection import Course
from slurm_fairshare.core.rebalance import Pass, rebalance
from slurm_fairshare.core.resources import MILLI, Resources
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.measured import History


class Store(History, Protocol):
    """What is asked of the store."""

    def latest_queue(self) -> Picture | None: ...

    def last_ranking(self) -> tuple[datetime, Ranking] | None: ...


def capacity_now(store: Store, config: Config, now: datetime) -> float | None:
    """GPUs in service (weighted by type), None where that is not known."""
    steps = store.capacity(Window(now - config.fairshare.lookback, now))
    return steps[-1].value if steps else None


def course_of(store: Store, config: Config, window: Window) -> Course:
    """How things go on from the end of the window, the last tick."""
    hours = store.charges_by_hour(window, window.end) if window.seconds else ()
    return Course(
        now=window.end,
        known=window.start,
        used=[(part, {account: amount / MILLI for account, amount in by.items()}) for part, by in hours],
        rates=_rates(store.latest_queue(), config),
        capacity=store.capacity(window),
        changesets=store.changesets(),
        lookback=config.fairshare.lookback,
        weight=config.weight,
    )


def _rates(picture: Picture | None, config: Config) -> Mapping[str, float]:
    """GPUs as they are charged that each account's charged runs hold."""
    rates: dict[str, float] = {}
    whole = Resources()
    for node in picture.nodes if picture is not None else ():
        whole = whole.plus(node.total)
    for job in picture.jobs if picture is not None else ():
        if job.holding and config.ladder.is_charged(job.qos):
            key = account_key(job.account)
            rates[key] = rates.get(key, 0.0) + config.charge_rule.milli_gpus(job.wanted, whole) / MILLI
    return rates


def pass_now(store: Store, config: Config, now: datetime) -> Pass | None:
    """What a rebalance pass decides on the last picture, None where that is too old to say."""
    picture, last = store.latest_queue(), store.last_ranking()
    rules = config.rules
    if picture is None or last is None or now - picture.at > rules.max_age:
        return None
    recent = store.decisions(now - rules.cooldown)
    return rebalance(picture, last[1], last[0], config.ladder, config.lane, rules, recent, now)
