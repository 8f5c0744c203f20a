"""From exact charges to weighted usage, and from capacity rows to steps: the same for every store."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from slurm_fairshare.core.resources import MILLI, ChargeRule, Resources
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Step, Weight, Window
from slurm_fairshare.store.facts import Adjustment

Charges = dict[str, int]
"""Milli-GPU-seconds by account key."""


def parts(window: Window, weight: Weight) -> tuple[Window, ...]:
    """The stretches inside which a second has one weight: the whole box, or the hours of a half-life."""
    return (window,) if weight.half_life is None else window.hours()


def weigh(charges: Sequence[tuple[Window, Charges]], weight: Weight, now: datetime) -> dict[str, float]:
    """GPU-seconds by account. The charges are integers and the sum is exact, so their order cannot matter."""
    terms: dict[str, list[float]] = {}
    for part, by_account in charges:
        mean = weight.mean(part, now)
        for account, amount in by_account.items():
            terms.setdefault(account, []).append(amount * mean)
    return {account: math.fsum(terms[account]) / MILLI for account in sorted(terms)}


USER_MARK = "\x1f"
"""Between an account's key and a user's name where the two are one key."""


def by_user(usage: Mapping[str, float]) -> dict[tuple[str, str], float]:
    """Usage keyed by `account USER_MARK user`, keyed by the pair."""
    found = {}
    for key, amount in usage.items():
        account, _, user = key.partition(USER_MARK)
        found[account, user] = amount
    return found


def adjust(
    charges: Sequence[tuple[Window, Charges]], adjustments: Iterable[Adjustment], now: datetime
) -> Sequence[tuple[Window, Charges]]:
    """The charges with the adjustments that count, each in the part it was made in."""
    for adjustment in adjustments:
        for part, by_account in charges:
            if adjustment.counts(part, now):
                key = account_key(adjustment.account)
                by_account[key] = by_account.get(key, 0) + adjustment.milli_gpu_seconds
    return charges


def capacity_steps(rows: Iterable[tuple[datetime, str, int]], window: Window, rule: ChargeRule) -> tuple[Step, ...]:
    """The weighted GPUs in service, from (moment, GPU type, in service) rows up to the window's end.

    What was in force when the window starts becomes a step at its start; before the first row nothing is known.
    """
    in_service: dict[str, int] = {}
    steps: dict[datetime, float] = {}
    for at, kind, count in sorted(rows):
        if at < window.end:
            in_service[kind] = count
            steps[max(at, window.start)] = _value(in_service, rule)
    found: list[Step] = []
    for at, value in steps.items():
        if not found or found[-1].value != value:
            found.append(Step(at, value))
    return tuple(found)


def _value(in_service: Mapping[str, int], rule: ChargeRule) -> float:
    return rule.milli_gpus(Resources(gpus=in_service)) / MILLI
