"""`usage`: GPU-hours by account, user, GPU type, QOS and stretch of the calendar."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any

from slurm_fairshare.core.resources import MILLI, ChargeRule
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.store.breakdown import Used
from slurm_fairshare.store.facts import Adjustment
from slurm_fairshare.units import HOUR, duration, gpu_hours, moment

TOTAL = "(total)"


@dataclass(frozen=True, slots=True)
class UsageRow:
    """One group over one part of the window; GPU-seconds. `paid` and `adjusted` are None where they cannot be told."""

    part: Window | None
    begins: str
    account: str
    user: str
    qos: str
    type: str
    charged: int
    unallocated: int
    paid: float | None
    adjusted: float | None
    runs: int


def _hours(value: float | None) -> float | None:
    return None if value is None else value / HOUR


def _shown(hours: float) -> str:
    return gpu_hours(hours * HOUR)


def _exact(hours: float) -> str:
    """To the GPU-second: four decimals of an hour are not enough for one."""
    return f"{hours:.6f}"


def _amount(name: str, get: Any, about: str, head: str, spare: int = 0) -> Column[UsageRow]:
    return Column(
        name, lambda row: _hours(get(row)), about, show=_shown, plain=_exact, right=True, head=head, spare=spare
    )


COLUMNS: tuple[Column[UsageRow], ...] = (
    Column("Begins", lambda row: row.begins, "when the hour, day or month begins, in the site's zone"),
    Column("Account", lambda row: row.account, "account, lower case as slurmdbd keeps it", elastic=True),
    Column("User", lambda row: row.user, "user", elastic=True),
    Column("QOS", lambda row: row.qos, "QOS: the rung"),
    Column("Type", lambda row: row.type, "GPU type; empty where Slurm does not tell it"),
    _amount("Charged", lambda row: row.charged, "GPU-hours of charged runs, unweighted", "Charged GPUh"),
    _amount("Unallocated", lambda row: row.unallocated, "GPU-hours of all other runs, unweighted", "Unalloc. GPUh"),
    _amount(
        "Paid",
        lambda row: row.paid,
        "GPU-hours that budgets pay: charged ones with the weight of their type, or by the dominant resource",
        "Paid GPUh",
    ),
    _amount(
        "Adjusted", lambda row: row.adjusted, "GPU-hours debited (or credited: negative) by hand", "Adjusted GPUh", 1
    ),
    Column("Runs", lambda row: row.runs, "runs that held anything then", right=True, spare=2),
)


def usage_rows(
    used: Iterable[Used],
    adjustments: Sequence[Adjustment],
    by: Collection[str],
    rule: ChargeRule,
    zone: tzinfo,
    cut: bool,
) -> tuple[UsageRow, ...]:
    """Charged and unallocated of each group side by side. `cut`: there is a row for each part of the calendar."""
    groups: dict[tuple[datetime, str, str, str, str], list[Used]] = {}
    for one in used:
        groups.setdefault((one.part.start, one.account, one.user, one.qos, one.type), []).append(one)
    alone = set(by) == {"account"} and not cut
    accounts = {account_key(one.account) for one in adjustments} if alone else set()
    missing = accounts - {key[1] for key in groups}
    rows = [_row(members, adjustments if alone else (), rule, zone, cut) for _, members in sorted(groups.items())]
    rows += [_adjusted_only(account, adjustments) for account in missing]
    return tuple(sorted(rows, key=lambda row: (row.begins, row.account, row.user, row.qos, row.type)))


def _row(
    members: Sequence[Used], adjustments: Sequence[Adjustment], rule: ChargeRule, zone: tzinfo, cut: bool
) -> UsageRow:
    first = members[0]
    charged = [one for one in members if one.charged]
    return UsageRow(
        part=first.part,
        begins=first.part.start.astimezone(zone).isoformat(timespec="seconds") if cut else "",
        account=first.account,
        user=first.user,
        qos=first.qos,
        type=first.type,
        charged=sum(one.gpu_seconds for one in charged),
        unallocated=sum(one.gpu_seconds for one in members if not one.charged),
        paid=_paid(charged, rule),
        adjusted=_adjusted(first.account, adjustments),
        runs=sum(one.runs for one in members),
    )


def _paid(charged: Sequence[Used], rule: ChargeRule) -> float | None:
    """By type: each type's GPUs with their weight. A run that pays for its dominant resource pays as a whole."""
    known = [one.milli_gpu_seconds for one in charged]
    if None not in known:
        return sum(amount for amount in known if amount is not None) / MILLI
    if rule.dominant:
        return None
    return sum(one.gpu_seconds * rule.weights.get(one.type, 1.0) for one in charged)


def _adjusted(account: str, adjustments: Sequence[Adjustment]) -> float:
    return sum(one.milli_gpu_seconds for one in adjustments if account_key(one.account) == account) / MILLI


def _adjusted_only(account: str, adjustments: Sequence[Adjustment]) -> UsageRow:
    return UsageRow(None, "", account, "", "", "", 0, 0, 0.0, _adjusted(account, adjustments), 0)


def total(rows: Sequence[UsageRow]) -> UsageRow:
    paid = [row.paid for row in rows]
    return UsageRow(
        part=None,
        begins="",
        account=TOTAL,
        user="",
        qos="",
        type="",
        charged=sum(row.charged for row in rows),
        unallocated=sum(row.unallocated for row in rows),
        paid=None if None in paid else sum(amount for amount in paid if amount is not None),
        adjusted=sum(row.adjusted or 0.0 for row in rows),
        runs=sum(row.runs for row in rows),
    )


def report(
    rows: Sequence[UsageRow],
    window: Window,
    read_until: datetime | None,
    now: datetime,
    zone: tzinfo,
    by: Sequence[str],
    notes: Sequence[str] = (),
    weighted: bool = False,
) -> Report[UsageRow]:
    names = {"account": "Account", "user": "User", "qos": "QOS", "type": "Type"}
    groups = [names[one] for one in by if one in names]
    begins = ["Begins"] if any(row.begins for row in rows) else []
    adjusted = ["Adjusted"] if any(row.adjusted for row in rows) else []
    amounts = ["Charged", "Unallocated", *(["Paid"] if weighted else []), *adjusted, "Runs"]
    whole = total(rows)
    return Report(
        noun="usage",
        columns=COLUMNS,
        rows=rows,
        shown=(*begins, *groups, *amounts),
        script=(*begins, *groups, "Charged", "Unallocated", "Paid", "Adjusted", "Runs"),
        above=(_header(window, zone), _age(read_until, now)),
        below=(
            f"In all {gpu_hours(whole.charged)} GPU-hours charged and {gpu_hours(whole.unallocated)} unallocated.",
            *notes,
        ),
        facts={
            "window_start": window.start,
            "window_end": window.end,
            "zone": str(zone),
            "accounting_read_until": read_until,
            "charged_gpu_seconds": whole.charged,
            "unallocated_gpu_seconds": whole.unallocated,
            "notes": list(notes),
        },
        empty="Nothing was used in this window.",
    )


def _header(window: Window, zone: tzinfo) -> str:
    """In UTC, and in the site's zone where that is another."""
    length = duration(window.seconds)
    told = f"Window {moment(window.start)} to {moment(window.end)} ({length}, UTC)"
    if str(zone) == "UTC":
        return f"{told}."
    local = [at.astimezone(zone).isoformat(timespec="seconds") for at in (window.start, window.end)]
    return f"{told}; {zone}: {local[0]} to {local[1]}."


def _age(read_until: datetime | None, now: datetime) -> str:
    if read_until is None:
        return "STALE: accounting has never been read; run `slurm-fairshare tick`, or start the daemon."
    age = duration(max(0.0, (now - read_until).total_seconds()))
    return f"Accounting was read up to {moment(read_until)}, {age} ago; what runs counts up to the window's end."
