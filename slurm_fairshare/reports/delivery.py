"""`delivery`: what each team was owed in a period and what of it was delivered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from slurm_fairshare.core.delivery import MET, Delivery
from slurm_fairshare.core.lost import by_account
from slurm_fairshare.core.resources import MILLI
from slurm_fairshare.core.tree import ROOT, SEPARATOR, account_key
from slurm_fairshare.reports.measured import Measured
from slurm_fairshare.reports.table import Column, Report
from slurm_fairshare.units import HOUR, gpu_hours, moment, percent

ALL = "all"
"""The line of all teams together."""


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """The whole, a node, or one user of an account. Everything in GPU-seconds but `under` (seconds).

    A user's line has what was used and unallocated alone: nobody owes a user.
    """

    path: str
    account: str
    user: str
    leaf: bool
    delivery: Delivery | None
    used: float
    unallocated: float
    lost: float | None
    lost_unallocated: float | None
    under: float | None
    worst: datetime | None
    missing: float | None
    accounts: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def depth(self) -> int:
        below = 0 if self.path == ROOT else self.path.count(SEPARATOR) + 1
        return below + bool(self.user)

    @property
    def owed(self) -> float | None:
        return self.delivery.owed if self.delivery is not None else None

    @property
    def got(self) -> float | None:
        return self.delivery.got if self.delivery is not None else None

    @property
    def delivered(self) -> float | None:
        """None where nothing was owed."""
        return self.delivery.delivered if self.delivery is not None and self.delivery.owed > 0 else None

    @property
    def hourly(self) -> float | None:
        return self.delivery.hourly if self.delivery is not None and self.delivery.owed > 0 else None


Amounts = Mapping[tuple[str, str], tuple[float, float]]
"""Charged and unallocated GPU-seconds by account key and user."""


def delivery_rows(measured: Measured) -> tuple[DeliveryRow, ...]:
    """The whole, the tree in its order with the users of each account, retired teams, and who is in no budget."""
    amounts = _amounts(measured)
    lost, free = by_account(measured.lost, charged=True), by_account(measured.lost, charged=False)
    everybody = {account for account, _ in amounts} | lost.keys() | free.keys()
    rows: list[DeliveryRow] = []

    def add(path: str, name: str, key: str, leaf: bool, accounts: Collection[str]) -> None:
        rows.append(_row(measured, path, name, key, leaf, frozenset(accounts), amounts, lost, free))
        if leaf:
            rows.extend(_users(rows[-1], account_key(name), amounts))

    add(ROOT, ALL, ROOT, False, everybody)
    tree = measured.tree
    for path, node in tree.nodes.items():
        below = {account_key(one.account) for one in node.walk() if one.account is not None}
        add(path, node.account or node.name, tree.keys[path], node.is_leaf, below)
    known = set(tree.by_account)
    retired = {key[1:] for key in measured.deliveries if key.startswith("@")} - known
    for account in sorted(retired | (everybody - known)):
        add(account, account, f"@{account}", True, {account})
    return tuple(rows)


def _amounts(measured: Measured) -> Amounts:
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for one in measured.holdings:
        used, free = found.get((one.account, one.user), (0.0, 0.0))
        amount = one.milli_gpu_seconds / MILLI
        found[one.account, one.user] = (used + amount, free) if one.charged else (used, free + amount)
    return found


def _row(
    measured: Measured,
    path: str,
    name: str,
    key: str,
    leaf: bool,
    accounts: frozenset[str],
    amounts: Amounts,
    lost: Mapping[str, float],
    free: Mapping[str, float],
) -> DeliveryRow:
    made = measured.deliveries.get(key)
    worst = made.worst() if made is not None else None
    return DeliveryRow(
        path=path,
        account=name,
        user="",
        leaf=leaf,
        delivery=made,
        used=sum(used for (account, _), (used, _) in amounts.items() if account in accounts),
        unallocated=sum(amount for (account, _), (_, amount) in amounts.items() if account in accounts),
        lost=sum(lost.get(account, 0.0) for account in accounts),
        lost_unallocated=sum(free.get(account, 0.0) for account in accounts),
        under=None if made is None else sum(measured.hours[hour].seconds for hour in made.under()),
        worst=None if worst is None else measured.hours[worst].start,
        missing=None if made is None or worst is None else made.owed_by_hour[worst] - made.met_by_hour[worst],
        accounts=accounts,
    )


def _users(row: DeliveryRow, account: str, amounts: Amounts) -> Iterator[DeliveryRow]:
    for (whose, user), (used, unallocated) in sorted(amounts.items()):
        if whose == account:
            yield DeliveryRow(
                row.path, row.account, user, False, None, used, unallocated, None, None, None, None, None, row.accounts
            )


def select(
    rows: Sequence[DeliveryRow], accounts: Collection[str] = (), *, users: bool = False
) -> tuple[DeliveryRow, ...]:
    """Only these accounts or nodes (by account, name or path) with what is below them; users where asked for."""
    wanted = {account_key(name) for name in accounts}
    return tuple(row for row in rows if (users or not row.user) and (not wanted or _matches(row, wanted)))


def _matches(row: DeliveryRow, wanted: Collection[str]) -> bool:
    parts = account_key(row.path).split(SEPARATOR)
    paths = {SEPARATOR.join(parts[: depth + 1]) for depth in range(len(parts))}
    return bool((paths | set(parts) | {account_key(row.account)}) & set(wanted))


def unknown(rows: Sequence[DeliveryRow], accounts: Collection[str]) -> tuple[str, ...]:
    """Names that match no line."""
    return tuple(name for name in accounts if not any(_matches(row, {account_key(name)}) for row in rows))


def teams(measured: Measured) -> tuple[Delivery, ...]:
    """The leaves that were owed anything."""
    return tuple(one for key, one in sorted(measured.deliveries.items()) if key.startswith("@") and one.owed > 0)


def summary(measured: Measured) -> str:
    """The figures people quote, in one sentence."""
    whole = measured.deliveries[ROOT]
    found = teams(measured)
    if not found:
        return "Nobody was owed anything in this time: no team wanted GPUs under contract."
    served = sum(1 for one in found if one.served)
    worst = min(one.delivered for one in found)
    return (
        f"{percent(whole.delivered)} of {gpu_hours(whole.owed)} GPU-hours owed were delivered "
        f"({percent(whole.hourly)} hour by hour); {served} of {len(found)} teams got {MET:.0%} or more, "
        f"the worst {percent(worst)}."
    )


def _hours(value: float) -> str:
    return f"{value:,.1f}"


def _plain_hours(value: float) -> str:
    return f"{value:.2f}"


def _fraction(value: float) -> str:
    return f"{value * 100:.1f}%"


def _paint(row: DeliveryRow) -> str:
    if row.delivery is None or row.delivery.owed <= 0:
        return ""
    return "green" if row.delivery.served else "red"


def _in_hours(value: float | None) -> float | None:
    return None if value is None else value / HOUR


def _short(at: datetime) -> str:
    return moment(at)[5:16].replace("T", " ") + "Z"


COLUMNS: tuple[Column[DeliveryRow], ...] = (
    Column(
        "Account",
        lambda row: row.account,
        "Slurm account of a team, name of a node above, `all` for the whole; indented as the tree",
        indent=lambda row: row.depth,
        elastic=True,
    ),
    Column("User", lambda row: row.user, "user, on the lines of users"),
    Column("Budget", lambda row: row.path, "path of the node in the budget tree", elastic=True, spare=12),
    Column(
        "Entitled",
        lambda row: _in_hours(row.delivery.entitled if row.delivery else None),
        "GPU-hours of entitlement: capacity x share",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=8,
    ),
    Column(
        "Owed",
        lambda row: _in_hours(row.owed),
        "GPU-hours owed: each hour the smaller of entitlement and demand",
        show=_hours,
        plain=_plain_hours,
        right=True,
    ),
    Column(
        "Used",
        lambda row: _in_hours(row.used),
        "GPU-hours charged, also above what was owed",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=4,
    ),
    Column(
        "Delivered",
        lambda row: _in_hours(row.got),
        "GPU-hours charged up to what was owed over the whole time",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=2,
    ),
    Column(
        "Percent",
        lambda row: row.delivered,
        "delivered / owed, as a fraction; none where nothing was owed",
        show=_fraction,
        right=True,
        paint=_paint,
    ),
    Column(
        "Hourly",
        lambda row: row.hourly,
        "the same hour by hour: what came later than it was owed does not count",
        show=_fraction,
        right=True,
        spare=1,
    ),
    Column(
        "HoursUnder",
        lambda row: _in_hours(row.under),
        "hours in which less than 95% of what they owed was delivered",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=5,
        head="Under",
    ),
    Column(
        "WorstHour",
        lambda row: row.worst,
        "the hour in which most was missing",
        show=_short,
        spare=7,
        head="Worst hour",
    ),
    Column(
        "Missing",
        lambda row: _in_hours(row.missing),
        "GPU-hours missing in that hour",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=6,
    ),
    Column(
        "Lost",
        lambda row: _in_hours(row.lost),
        "GPU-hours of charged work thrown away by evictions; they count as delivered",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=3,
    ),
    Column(
        "LostUnallocated",
        lambda row: _in_hours(row.lost_unallocated),
        "GPU-hours of unallocated work thrown away by evictions",
        show=_hours,
        plain=_plain_hours,
        right=True,
        spare=9,
        head="LostFree",
    ),
    Column(
        "Unallocated",
        lambda row: _in_hours(row.unallocated),
        "GPU-hours used that no budget paid for",
        show=_hours,
        plain=_plain_hours,
        right=True,
        head="Unalloc",
    ),
)

TABLE = (
    "Account", "Entitled", "Owed", "Used", "Delivered", "Percent", "Hourly", "HoursUnder", "WorstHour", "Missing",
    "Lost", "LostUnallocated", "Unallocated",
)  # fmt: skip
WITH_USERS = ("Account", "User", *TABLE[1:])
SCRIPT = ("Account", "User", "Budget", *TABLE[1:])


def report(measured: Measured, rows: Sequence[DeliveryRow], *, users: bool = False) -> Report[DeliveryRow]:
    """The selected rows of a measured period."""
    return Report(
        noun="delivery",
        columns=COLUMNS,
        rows=rows,
        shown=WITH_USERS if users else TABLE,
        script=SCRIPT,
        above=(*measured.period.lines(), summary(measured)),
        below=(
            "GPU-hours. Owed: each hour the smaller of entitlement and demand, a waiting job's demand anew each hour.",
            "Delivered: charged, up to what was owed over the whole time; Hourly counts each hour by itself.",
        ),
        facts={**measured.period.facts(), **_facts(measured), "units": "GPU-hours"},
        empty="No account or node of the budget tree matches.",
    )


def _facts(measured: Measured) -> dict[str, Any]:
    found = teams(measured)
    whole = measured.deliveries[ROOT]
    return {
        "delivered": whole.delivered if whole.owed > 0 else None,
        "hourly": whole.hourly if whole.owed > 0 else None,
        "teams": len(found),
        "teams_served": sum(1 for one in found if one.served),
        "worst_team": min((one.delivered for one in found), default=None),
    }
