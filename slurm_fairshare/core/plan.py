"""What Slurm should hold, what it holds, and the changes between the two.

Desired are: the ladder's QOS with their protection, access to them for the accounts of the tree, and each
leaf's *label*: the Priority of its association, larger for a better rank. Labels are multiples of a band, so
that everything that sorts within a leaf stays inside its band. Only names under our prefix and the accounts
in the tree are ours; everything else is left alone.

Changes come in an order that is safe at every step: a plan applied half protects too much, never too little.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from slurm_fairshare.core.booking import Booking
from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.fairshare import Ranking
from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.users import UserUsage, user_order
from slurm_fairshare.errors import BudgetError

BAND = 100_000
"""Width of a leaf's band: in-team priority (up to 40,000) + user standing (39,999) + age (19,999) < BAND."""

TOP_STANDING = 39_999
"""Largest standing of a user inside the account's band, where users are ranked."""

TOP_LABEL = 19_999
"""Largest label in bands: with a debug lane of as much above it, a job's priority stays within 32 bits."""


@dataclass(frozen=True, slots=True)
class Qos:
    """One QOS as Slurm holds it or should. Times in seconds; limits in Slurm's own words, "" for none."""

    name: str
    priority: int = 0
    grace: int = 0
    exempt: int = 0
    preempts: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()
    max_tres_per_job: str = ""
    max_tres_per_account: str = ""


@dataclass(frozen=True, slots=True)
class Association:
    """An account's association, or with a user that user's own, as slurmctld holds it (inherited values shown)."""

    account: str
    user: str = ""
    priority: int | None = None
    qos: frozenset[str] = frozenset()
    default_qos: str = ""


@dataclass(frozen=True)
class Held:
    """What Slurm holds now. Account names as Slurm prints them: lower case."""

    qos: Mapping[str, Qos] = field(default_factory=dict)
    associations: tuple[Association, ...] = ()

    @cached_property
    def accounts(self) -> Mapping[str, Association]:
        """The accounts' own associations, by key."""
        return {account_key(one.account): one for one in self.associations if not one.user}

    def account(self, name: str) -> Association | None:
        return self.accounts.get(account_key(name))


@dataclass(frozen=True, slots=True)
class AddQos:
    """Create the QOS empty, so that it can be named; `SetQos` gives it its values before anyone may use it."""

    name: str


@dataclass(frozen=True, slots=True)
class SetQos:
    """Give a QOS these values. `before` is None right after `AddQos`."""

    qos: Qos
    before: Qos | None


@dataclass(frozen=True, slots=True)
class Allow:
    """Let accounts use QOS, in addition to what they may use already, and start unasked jobs in `default`."""

    accounts: tuple[str, ...]
    qos: tuple[str, ...]
    default: str


@dataclass(frozen=True, slots=True)
class SetPriority:
    """Give all these accounts the label."""

    accounts: tuple[str, ...]
    priority: int


@dataclass(frozen=True, slots=True)
class ClearUserPriority:
    """Take a user's own Priority off, so that the account's label holds for this user too."""

    account: str
    user: str


@dataclass(frozen=True, slots=True)
class SetUserPriority:
    """Give a user of an account a Priority of its own: the account's label and the user's standing in it."""

    account: str
    user: str
    priority: int


@dataclass(frozen=True, slots=True)
class Disallow:
    """Take QOS away from accounts, and with `label` their Priority."""

    accounts: tuple[str, ...]
    qos: tuple[str, ...]
    label: bool = True


@dataclass(frozen=True, slots=True)
class RemoveQos:
    name: str


@dataclass(frozen=True, slots=True)
class Unbook:
    """Take the job out of its booking, and then the booking away."""

    booking: Booking


Change = AddQos | SetQos | Allow | SetPriority | ClearUserPriority | SetUserPriority | Disallow | RemoveQos | Unbook


def describe(change: Change) -> str:
    """A change in words, as `plan` and `--dry-run` print it."""
    match change:
        case AddQos(name):
            return f"add QOS {name}"
        case SetQos(qos, before):
            return f"set QOS {qos.name}: " + ", ".join(_differences(qos, before))
        case Allow(accounts, qos, default):
            return f"allow {', '.join(qos)} (default {default}) for {', '.join(accounts)}"
        case SetPriority(accounts, priority):
            return f"set Priority {priority} for {', '.join(accounts)}"
        case ClearUserPriority(account, user):
            return f"clear the own Priority of user {user} in account {account}"
        case SetUserPriority(account, user, priority):
            return f"set Priority {priority} for user {user} in account {account}"
        case Disallow(accounts, qos, label):
            taken = [*qos, *(["the Priority"] if label else [])]
            return f"take {', '.join(taken)} away from {', '.join(accounts)}"
        case RemoveQos(name):
            return f"remove QOS {name}"
        case Unbook(booking):
            return f"release the nodes booked for job {booking.job_id} ({booking.kind}): {', '.join(booking.nodes)}"


def _differences(qos: Qos, before: Qos | None) -> list[str]:
    old = before or Qos(qos.name)
    words = (
        ("Priority", old.priority, qos.priority),
        ("GraceTime", f"{old.grace}s", f"{qos.grace}s"),
        ("PreemptExemptTime", f"{old.exempt}s", f"{qos.exempt}s"),
        ("Preempt", ",".join(sorted(old.preempts)), ",".join(sorted(qos.preempts))),
        ("Flags", ",".join(sorted(old.flags)), ",".join(sorted(qos.flags))),
        ("MaxTRESPerJob", old.max_tres_per_job, qos.max_tres_per_job),
        ("MaxTRESPerAccount", old.max_tres_per_account, qos.max_tres_per_account),
    )
    return [f"{word} {new or 'none'}" for word, was, new in words if was != new or (before is None and new)]


def desired_qos(ladder: Ladder, lane: DebugLane | None) -> tuple[Qos, ...]:
    """The ladder as QOS. Protection twice: GraceTime and PreemptExemptTime both equal the minimum runtime.

    Every rung may preempt `unallocated`, natively and at any time. No rung may preempt another: Slurm
    refuses cycles, and who yields after the minimum runtime depends on the tree, which Slurm does not know.
    """
    below = ladder.unallocated
    wanted = []
    for rung in ladder.rungs:
        in_lane = lane is not None and lane.covers(rung)
        wanted.append(
            Qos(
                name=rung.name,
                grace=rung.min_runtime,
                exempt=rung.min_runtime,
                preempts=frozenset() if rung == below else frozenset({below.name}),
                priority=lane.priority if lane and in_lane else 0,
                max_tres_per_job=f"gres/gpu={lane.max_gpus}" if lane and in_lane else "",
                max_tres_per_account=f"gres/gpu={lane.max_gpus_per_team}" if lane and in_lane else "",
            )
        )
    return tuple(wanted)


def labels(order: Sequence[str], current: Mapping[str, int], top: int = TOP_LABEL) -> dict[str, int]:
    """A label in bands for each name in order of rank (best first), moving as few as possible.

    Labels fall strictly along the order and lie in 1..top. `current` may hold anything: what is not a
    label (missing, zero, out of range, held by another) simply moves. A set of names can keep its labels
    iff between any two of them, and outside the first and last, there is room for the names between; with
    `slack = label + position` that says: slack never rises along the order. So the largest set that stays is
    a longest non-increasing subsequence of the slacks, and no solution moves fewer.
    """
    count = len(order)
    if count > top:
        raise BudgetError(f"{count} leaves are more than the {top} labels; join some leaves")
    fixed = _stay([(position, current.get(name, 0)) for position, name in enumerate(order)], count, top)
    found: dict[str, int] = {}
    edges = [(-1, top + 1), *fixed, (count, 0)]
    for (left, high), (right, low) in itertools.pairwise(edges):
        if right < count:
            found[order[right]] = low
        for step in range(1, right - left):
            found[order[left + step]] = high - (high - low) * step // (right - left)
    return {name: found[name] for name in order}


def _stay(placed: Sequence[tuple[int, int]], count: int, top: int) -> list[tuple[int, int]]:
    """The largest set of (position, label) that can stay: patience sorting, non-increasing in slack."""
    tails: list[int] = []  # tails[k] = the best last (largest) slack of a sequence of k+1, kept negated
    ends: list[int] = []
    before: dict[int, int] = {}
    chosen: list[tuple[int, int]] = list(placed)
    for index, (position, label) in enumerate(chosen):
        if not count - position <= label <= top - position:
            continue
        slack = -(label + position)
        length = bisect_right(tails, slack)
        if length == len(tails):
            tails.append(slack)
            ends.append(index)
        else:
            tails[length] = slack
            ends[length] = index
        if length:
            before[index] = ends[length - 1]
    kept: list[tuple[int, int]] = []
    at = ends[-1] if ends else None
    while at is not None:
        kept.append(chosen[at])
        at = before.get(at)
    return kept[::-1]


def plan(
    ranking: Ranking, ladder: Ladder, lane: DebugLane | None, held: Held, users: UserUsage | None = None
) -> tuple[Change, ...]:
    """The changes that take Slurm from what it holds to what it should hold. Empty when nothing differs.

    `users` is what each user used where users are ranked inside their account; None where all of them share its
    label, and nobody has a Priority of their own.
    Leaves whose account Slurm does not know get no change: `unknown_accounts` names them.
    """
    wanted = desired_qos(ladder, lane)
    known = [leaf for leaf in ranking.leaves if held.account(leaf.account) is not None]
    return (
        *_qos_changes(wanted, held),
        *_access_changes([leaf.account for leaf in known], ladder, held),
        *_priority_changes([leaf.account for leaf in known], held, users),
    )


def _qos_changes(wanted: Sequence[Qos], held: Held) -> Iterable[Change]:
    """First all names, then the values: a QOS can preempt only one that exists."""
    for qos in wanted:
        if qos.name not in held.qos:
            yield AddQos(qos.name)
    for qos in wanted:
        before = held.qos.get(qos.name)
        if before != qos:
            yield SetQos(qos, before)


def _access_changes(accounts: Sequence[str], ladder: Ladder, held: Held) -> Iterable[Change]:
    names = tuple(rung.name for rung in ladder.rungs)
    default = ladder.unallocated.name
    lacking = [
        account_key(account)
        for account in accounts
        if (has := held.account(account)) is not None and (not has.qos.issuperset(names) or has.default_qos != default)
    ]
    if lacking:
        yield Allow(tuple(sorted(lacking)), names, default)


def _priority_changes(accounts: Sequence[str], held: Held, users: UserUsage | None) -> Iterable[Change]:
    order = [account_key(account) for account in accounts]
    holds = {account_key(a.account): a for a in held.associations if not a.user}
    current = {name: _label(holds[name].priority) for name in order}
    wanted = labels(order, current)
    moved: dict[int, list[str]] = {}
    for name in order:
        if holds[name].priority != wanted[name] * BAND:
            moved.setdefault(wanted[name] * BAND, []).append(name)
    for priority, names in moved.items():
        yield SetPriority(tuple(names), priority)
    if users is None:
        yield from _shared_labels(order, holds, held)
    else:
        yield from _user_labels({name: wanted[name] * BAND for name in order}, held, users)


def _shared_labels(order: Sequence[str], holds: Mapping[str, Association], held: Held) -> Iterable[Change]:
    """A user shows the account's value unless it has its own; only its own can differ from it."""
    ours = frozenset(order)
    for own in held.associations:
        account = account_key(own.account)
        if own.user and account in ours and own.priority != holds[account].priority:
            yield ClearUserPriority(account, own.user)


def _user_labels(bands: Mapping[str, int], held: Held, users: UserUsage) -> Iterable[Change]:
    """Each user's Priority inside the account's band, moving as few users as possible.

    A user who shows the account's bare label has no standing yet. One with several associations in an account (by
    partition) has the same in all of them.
    """
    found: dict[str, dict[str, int | None]] = {}
    for own in held.associations:
        account = account_key(own.account)
        if own.user and account in bands:
            found.setdefault(account, {})[own.user] = own.priority
    for account, people in sorted(found.items()):
        order = user_order(account, people, users)
        standing = labels(order, {user: (priority or 0) % BAND for user, priority in people.items()}, TOP_STANDING)
        for user in order:
            if people[user] != bands[account] + standing[user]:
                yield SetUserPriority(account, user, bands[account] + standing[user])


def _label(priority: int | None) -> int:
    """The label in bands, 0 if the value is none of ours."""
    if priority is None or priority % BAND:
        return 0
    return priority // BAND


def removal(accounts: Sequence[str], held: Held, prefix: str, in_use: Container[str] = ()) -> tuple[Change, ...]:
    """The changes that take everything of ours out of Slurm again: access first, then the QOS themselves.

    A QOS that is `in_use` by an unfinished job stays, and so does the access to it: the job would lose its protection
    with the one and never start without the other. Once the job has left, the same call takes them out.
    """
    gone = tuple(sorted(name for name in held.qos if name.startswith(prefix) and name not in in_use))
    touched = tuple(
        sorted(
            account_key(account)
            for account in accounts
            if (has := held.account(account)) is not None and (has.qos & set(gone) or _label(has.priority))
        )
    )
    taken = (Disallow(touched, gone),) if touched else ()
    own = _shared_labels(touched, {name: held.accounts[name] for name in touched}, held)
    return (*own, *taken, *_removed(gone, held))


def retirement(ladder: Ladder, held: Held, prefix: str, in_use: Container[str] = ()) -> tuple[Change, ...]:
    """The changes that take out rungs which the settings no longer have; one that is `in_use` stays for now."""
    gone = tuple(name for name in retired(ladder, held, prefix) if name not in in_use)
    allowed = tuple(sorted(account for account, has in held.accounts.items() if has.qos & set(gone)))
    taken = (Disallow(allowed, gone, label=False),) if allowed else ()
    return (*taken, *_removed(gone, held))


def retired(ladder: Ladder, held: Held, prefix: str) -> tuple[str, ...]:
    """QOS under our prefix that are no rung (any more)."""
    return tuple(sorted(name for name in held.qos if name.startswith(prefix) and ladder.rung(name) is None))


def _removed(gone: Sequence[str], held: Held) -> Iterable[Change]:
    """Off everybody's Preempt list first: before 25.05 Slurm leaves the name of a removed QOS in there."""
    for qos in held.qos.values():
        if qos.name not in gone and qos.preempts & set(gone):
            yield SetQos(replace(qos, preempts=qos.preempts - set(gone)), qos)
    for name in gone:
        yield RemoveQos(name)


def unknown_accounts(ranking: Ranking, held: Held) -> tuple[str, ...]:
    """Accounts bound to a leaf that Slurm does not know."""
    return tuple(leaf.account for leaf in ranking.leaves if held.account(leaf.account) is None)


def unbudgeted_accounts(ranking: Ranking, held: Held) -> tuple[str, ...]:
    """Accounts with users that Slurm knows and no leaf is bound to: their jobs are in nobody's budget.

    Not `root`: every Slurm has it, with the user root in it.
    """
    bound = {account_key(leaf.account) for leaf in ranking.leaves} | {"root"}
    found = {account_key(a.account) for a in held.associations if a.user}
    return tuple(sorted(found - bound))
