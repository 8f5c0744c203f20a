"""What every edit of the budget tree goes through: read, make, check, show, record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import rich_click as click

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.options import coming_moment
from slurm_fairshare.cli.output import emit, say, width
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.edits import Sets, check_addition, refuse_outdated, replaced_later
from slurm_fairshare.core.tree import Changeset, Tree, tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import BudgetError
from slurm_fairshare.reports import budget_file, budgets
from slurm_fairshare.reports.table import Form
from slurm_fairshare.units import moment

Function = TypeVar("Function", bound=Callable[..., Any])

RECENT = timedelta(days=1)


def edit_options(function: Function) -> Function:
    """--from and --expect, the same for every edit."""
    start = click.option(
        "--from",
        "start",
        metavar="TIME",
        help="From when on: a moment to come (2027-01-01, in the site's zone) or in how long (7d); now without.",
    )
    expect = click.option(
        "--expect",
        type=click.IntRange(min=0),
        metavar="ID",
        help="The last changeset you know of (`budget show` prints it): refuse the edit if there are later ones.",
    )
    decorated: Function = start(expect(function))
    return decorated


reason_option = click.option("--reason", required=True, help="Why, for those who ask later.")


@dataclass(frozen=True, slots=True)
class Asked:
    """How an edit is wanted."""

    reason: str
    start: str | None = None
    expect: int | None = None
    dry_run: bool = False


Make = Callable[[Tree, tuple[Changeset, ...], datetime], Sets]
"""The sets of an edit, from the tree at its moment, all changesets, and that moment."""


def record(app: App, asked: Asked, make: Make) -> Changeset | None:
    """Make the edit, show what changes, record it unless it is only tried. None if there is nothing to change.

    The tree is that of the edit's own moment, with what is planned until then.
    """
    with app.store() as store:
        changesets = store.changesets()
        last = last_id(changesets)
        if asked.expect is not None:
            refuse_outdated(changesets, asked.expect)
        at = effective_moment(app, asked.start, changesets)
        before = tree_at(changesets, at)
        sets = make(before, changesets, at)
        if not changes_something(sets, before):
            say(["Nothing to change: the tree is that already."])
            return None
        created = at if asked.start is None else app.now
        new = Changeset(last + 1, app.user, asked.reason, created, at, sets)
        if asked.dry_run:
            check_addition(changesets, new, None)
        else:
            new = store.add_changeset(new.author, new.reason, at, sets, expected_last_id=last, created=new.created)
        done = "Would change" if asked.dry_run else f"Changeset {new.id} by {new.author}"
        above = f"{done}, in force from {moment(new.effective)}: {new.reason}"
        show(app, store, (*changesets, new), new, before, above)
    return new


def last_id(changesets: tuple[Changeset, ...]) -> int:
    return max((change.id for change in changesets), default=0)


def effective_moment(app: App, start: str | None, changesets: tuple[Changeset, ...]) -> datetime:
    """From when on. An edit `now` is never before one that was recorded first, whatever the two clocks say."""
    if start is not None:
        return coming_moment(start, app.now, app.config.zone)
    return max([app.now, *(min(one.created, one.effective) for one in changesets)])


def changes_something(sets: Sets, tree: Tree) -> bool:
    """Whether any set differs from the tree's, order aside. Sets below retired nodes count too, if they end one."""
    current = tree.sets()
    return any(
        sorted(shares, key=lambda share: share.name) != sorted(current.get(parent, ()), key=lambda share: share.name)
        or (not shares and parent not in current)
        for parent, shares in sets.items()
    )


def show(app: App, store: Store, changesets: tuple[Changeset, ...], new: Changeset, before: Tree, above: str) -> None:
    """What the edit does, in every unit, and what is planned on top of it."""
    after = tree_at(changesets, new.effective)
    later = tuple(
        f"Changeset {one.id} ({one.author}, from {moment(one.effective)}) replaces it again, at least in part; "
        f"`slurm-fairshare budget cancel {one.id}` would keep it from doing so."
        for one in replaced_later(changesets, new)
    )
    rows = budgets.differences(before, after, capacity_now(app, store))
    emit(budgets.difference_report(rows, (above,), below=later), Form(width=width()))


def capacity_now(app: App, store: Store) -> float | None:
    """GPUs in service now, None before the first tick."""
    steps = store.capacity(Window(app.now - RECENT, app.now))
    return steps[-1].value if steps else None


def read_file(file: Path) -> Sets:
    """The sibling sets in a YAML file, checked as a tree."""
    return budget_file.read(_text(file), str(file))


def _text(file: Path) -> str:
    try:
        with click.open_file(str(file), encoding="utf-8") as stream:
            text: str = stream.read()
            return text
    except OSError as error:
        raise BudgetError(f"{file} cannot be read: {error.strerror}; name a YAML file with a budget tree") from error
    except UnicodeDecodeError as error:
        raise BudgetError(f"{file} is not UTF-8 text: {error.reason}; save it as UTF-8") from error
