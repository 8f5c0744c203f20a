"""`budget set`, `add`, `move`, `retire`, `cancel`: edits of the tree, each one changeset."""

from __future__ import annotations

from collections.abc import Sequence

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.editing import Asked, Make, edit_options, last_id, reason_option, record, show
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.core import edits
from slurm_fairshare.core.edits import check_cancel, is_below, read_child, read_path, refuse_outdated
from slurm_fairshare.core.tree import Changeset, tree_at
from slurm_fairshare.store.facts import managers_now
from slurm_fairshare.units import moment

share_option = click.option("--share", "weight", type=click.FloatRange(min=0), metavar="N", help="Its weight.")
account_option = click.option("--account", metavar="A", help="Slurm account of a leaf; its name without.")
child_option = click.option(
    "--child",
    "children",
    multiple=True,
    metavar="NAME=SHARE:ACCOUNT",
    help="A leaf below the new node, which is then a branch; may be repeated.",
)


def setting(path: str, children: Sequence[str]) -> Make:
    shares = [read_child(child) for child in children]
    return lambda tree, _changesets, _at: edits.set_shares(tree, read_path(path), shares)


def adding(path: str, weight: float, account: str | None, children: Sequence[str] = ()) -> Make:
    shares = [read_child(child) for child in children]
    return lambda tree, _changesets, _at: edits.add(tree, read_path(path), weight, account, shares)


def moving(path: str, parent: str, weight: float | None) -> Make:
    return lambda tree, _changesets, _at: edits.move(tree, read_path(path), read_path(parent), weight)


def retiring(path: str) -> Make:
    return lambda tree, _changesets, _at: edits.retire(tree, read_path(path))


@click.command("set", context_settings=HELP)
@click.argument("path")
@click.argument("children", nargs=-1, required=True, metavar="CHILD=SHARE[:ACCOUNT]...")
@reason_option
@edit_options
@dry_run_option
@config_option
@pass_app
def set_(
    app: App, path: str, children: tuple[str, ...], reason: str, start: str | None, expect: int | None, dry_run: bool
) -> None:
    """Replace the children of PATH (/ is the root) as a whole: who is not named is retired.

    A child that is there already keeps its account, or what is below it; a new one needs its Slurm account.

    \b
    slurm-fairshare budget set lab vision=60 language=40 --reason "the board of May"
    slurm-fairshare budget set lab vision=60 language=30 video=10:video --reason "a new team" --from 2027-01-01
    """
    record(app, Asked(reason, start, expect, dry_run), setting(path, children))


@click.command(context_settings=HELP)
@click.argument("path")
@share_option
@account_option
@child_option
@reason_option
@edit_options
@dry_run_option
@config_option
@pass_app
def add(
    app: App,
    path: str,
    weight: float | None,
    account: str | None,
    children: tuple[str, ...],
    reason: str,
    start: str | None,
    expect: int | None,
    dry_run: bool,
) -> None:
    """Add the node PATH beside its siblings, whose shares stay as they are: each one's per cent becomes less.

    \b
    slurm-fairshare budget add lab/video --share 10 --account video --reason "a new team"
    slurm-fairshare budget add lab/bio --share 20 --child fold=1:fold --child dock=1:dock --reason "a programme"
    """
    if weight is None:
        raise click.UsageError("--share is missing: its weight among its siblings, such as --share 10")
    record(app, Asked(reason, start, expect, dry_run), adding(path, weight, account, children))


@click.command(context_settings=HELP)
@click.argument("path")
@click.argument("new_parent", metavar="NEWPARENT")
@share_option
@reason_option
@edit_options
@dry_run_option
@config_option
@pass_app
def move(
    app: App,
    path: str,
    new_parent: str,
    weight: float | None,
    reason: str,
    start: str | None,
    expect: int | None,
    dry_run: bool,
) -> None:
    """Hang PATH, with all below it, below NEWPARENT (/ is the root); with its share, or the one given.

    A team's past moves with it: usage is kept by Slurm account. Each hour stays with who paid for it then.
    """
    made = record(app, Asked(reason, start, expect, dry_run), moving(path, new_parent, weight))
    if made is not None and not dry_run:
        _tell_managers(app, read_path(path))


@click.command(context_settings=HELP)
@click.argument("path")
@reason_option
@edit_options
@dry_run_option
@config_option
@pass_app
def retire(app: App, path: str, reason: str, start: str | None, expect: int | None, dry_run: bool) -> None:
    """Take PATH and all below it out of the tree. Its past stays, and what its siblings get grows."""
    made = record(app, Asked(reason, start, expect, dry_run), retiring(path))
    if made is not None and not dry_run:
        _tell_managers(app, read_path(path))


def _tell_managers(app: App, path: str) -> None:
    """Managers are kept by path; who managed the old one should not wake up with a new team of that name."""
    with app.store() as store:
        left = [pair for pair in managers_now(store.manager_changes()) if is_below(pair[0], path)]
    say(f"{role} still manages {below}: slurm-fairshare budget revoke {below} {role}" for below, role in left)


@click.command(context_settings=HELP)
@click.argument("changeset", type=click.IntRange(min=1), metavar="ID")
@reason_option
@click.option("--expect", type=click.IntRange(min=0), metavar="ID", help="The last changeset you know of.")
@dry_run_option
@config_option
@pass_app
def cancel(app: App, changeset: int, reason: str, expect: int | None, dry_run: bool) -> None:
    """Cancel changeset ID, which is not in force yet. It stays in the log, with who cancelled it and why."""
    with app.store() as store:
        changesets = store.changesets()
        if expect is not None:
            refuse_outdated(changesets, expect)
        planned = check_cancel(changesets, changeset, app.now)
        before = tree_at(changesets, planned.effective)
        new = Changeset(last_id(changesets) + 1, app.user, reason, app.now, app.now, {}, changeset)
        if dry_run:
            edits.check_addition(changesets, new, None)
        else:
            last = last_id(changesets)
            new = store.add_changeset(
                app.user, reason, app.now, {}, expected_last_id=last, created=app.now, cancels=changeset
            )
        done = "Would cancel" if dry_run else f"Changeset {new.id} by {new.author} cancels"
        say([f"{done} changeset {changeset} of {planned.author}: {reason}"])
        shown = Changeset(new.id, new.author, new.reason, new.created, planned.effective, planned.sets, changeset)
        above = f"From {moment(planned.effective)} on, in place of what was planned:"
        show(app, store, (*changesets, shown), shown, before, above)
