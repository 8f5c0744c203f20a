"""How the ranking goes on if nothing changes: what runs goes on running, nothing else starts, capacity stays.

No forecast: jobs end and others start. It says where the standing turns by itself, because old usage leaves the
lookback window and what runs now keeps counting. The same formula as ever, with a later `now`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from slurm_fairshare.core.fairshare import Ranking, Usage, from_the_first, rank
from slurm_fairshare.core.tree import Changeset, Epoch, epochs, tree_at
from slurm_fairshare.core.window import Piece, Step, Weight, Window, weighed

STEPS = (*[timedelta(hours=hour) for hour in range(1, 25)], *[timedelta(hours=hour) for hour in range(30, 169, 6)])
"""The moments looked at: every hour of a day, then every six hours of a week."""


@dataclass(frozen=True)
class Course:
    """What the projection goes on from, at `now`.

    `used` is what was charged in each past hour (GPU-seconds by account key), `rates` the GPUs (as charged) that
    each account's charged runs hold now. `known` is where the window may begin at the earliest.
    """

    now: datetime
    known: datetime
    used: Sequence[tuple[Window, Mapping[str, float]]]
    rates: Mapping[str, float]
    capacity: Sequence[Step]
    changesets: Sequence[Changeset]
    lookback: timedelta
    weight: Weight


def ranking_in(course: Course, ahead: timedelta) -> Ranking:
    """The ranking so much later. Budget changes that are recorded for then take effect then."""
    at = course.now + ahead
    window = Window(max(at - course.lookback, course.known), at)
    tree = tree_at(course.changesets, at)
    stretches = from_the_first(epochs(course.changesets, window.start, window.end), tree)
    pieces = _pieces(course, window)
    usage = [Usage(stretch, _used(pieces, stretch, course.weight, at)) for stretch in stretches]
    return rank(tree, course.capacity, usage, course.weight, at)


def _pieces(course: Course, window: Window) -> dict[str, list[Piece]]:
    """What each account is charged for inside the window: past hours, then what it holds now."""
    found: dict[str, list[Piece]] = {}
    for part, amounts in course.used:
        shared = window.cut(part.start, part.end)
        if shared is not None:
            for account, amount in amounts.items():
                found.setdefault(account, []).append(Piece(shared, amount / part.seconds))
    for account, gpus in course.rates.items():
        shared = window.cut(course.now, window.end)
        if shared is not None and gpus:
            found.setdefault(account, []).append(Piece(shared, gpus))
    return found


def _used(pieces: Mapping[str, Sequence[Piece]], epoch: Epoch, weight: Weight, at: datetime) -> dict[str, float]:
    stretch = Window(epoch.start, epoch.end)
    if stretch.seconds == 0:
        return {}
    return {account: weighed(_inside(some, stretch), weight, at) for account, some in pieces.items()}


def _inside(pieces: Iterable[Piece], stretch: Window) -> Iterator[Piece]:
    for piece in pieces:
        shared = stretch.cut(piece.part.start, piece.part.end)
        if shared is not None:
            yield Piece(shared, piece.rate)


@dataclass(frozen=True, slots=True)
class Turn:
    """A moment by which something about a node is different, and how it stands by then."""

    at: datetime
    ratio: float
    rank: int | None


@dataclass(frozen=True, slots=True)
class Turns:
    """When a node first changes sides of its target, and when its account first changes its rank. None: not within
    the time looked at."""

    side: Turn | None
    rank: Turn | None


def turns(course: Course, start: Ranking, paths: Sequence[str], steps: Sequence[timedelta] = STEPS) -> dict[str, Turns]:
    """The first turns of each node, to the step."""
    found: dict[str, Turns] = {path: Turns(None, None) for path in paths}
    for ahead in steps:
        if all(one.side is not None and one.rank is not None for one in found.values()):
            break
        later = ranking_in(course, ahead)
        places = {leaf.path: leaf.rank for leaf in later.leaves}
        for path, known in found.items():
            if path in later.standings:
                found[path] = _turned(known, path, start, later, places, course.now + ahead)
    return found


def _turned(known: Turns, path: str, start: Ranking, later: Ranking, places: Mapping[str, int], at: datetime) -> Turns:
    standing = later.standings[path]
    turn = Turn(at, standing.ratio, places.get(path))
    before = {leaf.path: leaf.rank for leaf in start.leaves}.get(path)
    crossed = standing.over_target != start.standings[path].over_target
    moved = before is not None and places.get(path) != before
    return Turns(known.side or (turn if crossed else None), known.rank or (turn if moved else None))
