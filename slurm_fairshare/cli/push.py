"""`plan` and `apply`: what Slurm should hold beside what it holds, and the way from one to the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, output_options
from slurm_fairshare.cli.output import emit, say, width, working
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core import plan as planning
from slurm_fairshare.core.plan import Change, ClearUserPriority, Held, SetPriority, SetUserPriority, Unbook
from slurm_fairshare.daemon.ports import Slurm
from slurm_fairshare.errors import FairshareError, NotLeading
from slurm_fairshare.reports import changes as report
from slurm_fairshare.reports.table import Form, Report
from slurm_fairshare.reports.ticks import account_notes

LABELS_LEFT = (
    "Priorities are left to the next tick: there is no ranking of the last few minutes, and nothing is pushed "
    "from stale data."
)

PLUGIN_FIRST = (
    "Take lua out of JobSubmitPlugins in slurm.conf before: the plugin goes on putting jobs on rungs, and where they "
    "are gone every submission is refused."
)

remove_option = click.option("--remove", is_flag=True, help="Take everything of ours out of Slurm again.")


@click.command(context_settings=HELP)
@remove_option
@output_options()
@config_option
@pass_app
def plan(app: App, remove: bool, form: Form) -> None:
    """Show the changes that take Slurm from what it holds to what it should hold. Changes nothing."""
    with app.store() as store, working("reading what Slurm holds"):
        todo = _todo(app, store, app.slurm(store), remove)
    emit(_report(todo, remove), form)


@click.command(context_settings=HELP)
@dry_run_option
@remove_option
@config_option
@pass_app
def apply(app: App, dry_run: bool, remove: bool) -> None:
    """Carry the plan out: QOS ladder, access, priorities. Needs Slurm's AdminLevel Administrator for the QOS.

    Only QOS under our prefix and accounts of the budget tree are touched. A second run changes nothing. A QOS of ours
    that a job still uses is neither retired nor removed: run it again when the job has left; --remove ends with 1 then.
    """
    with app.store() as store:
        slurm = app.slurm(store)
        with working("reading what Slurm holds"):
            todo = _todo(app, store, slurm, remove)
        changes = todo.changes
        emit(_report(todo, remove), Form(width=width()))
        if dry_run:
            return
        if changes:
            with working(f"carrying out {len(changes)} changes"), _alone(store, remove):
                slurm.carry_out(changes)
            say([f"Done: {len(changes)} {'change' if len(changes) == 1 else 'changes'} carried out."])
    if remove and todo.used:
        raise StillUsed("not everything could be taken out of Slurm; what is left stands above")


class StillUsed(FairshareError):
    """Something of ours stays in Slurm for now, because jobs use it."""


@dataclass(frozen=True, slots=True)
class _Todo:
    """The changes, what to tell beside them, and our QOS that stay for now with the number of jobs in each."""

    changes: Sequence[Change]
    notes: tuple[str, ...]
    used: Mapping[str, int]


def _report(todo: _Todo, remove: bool) -> Report[report.Step]:
    nothing = "Nothing to take out of Slurm." if remove else report.NOTHING
    return report.report(todo.changes, notes=todo.notes, nothing=nothing)


@contextmanager
def _alone(store: Store, remove: bool) -> Iterator[None]:
    """No daemon may lead while everything is taken out: its next tick would put it back."""
    if not remove:
        yield
        return
    try:
        with store.lead():
            yield
    except NotLeading as error:
        error.add_note("stop the daemon first: its next tick would put everything back")
        raise


def _todo(app: App, store: Store, slurm: Slurm, remove: bool) -> _Todo:
    held = slurm.held()
    ours = _leaving(app, held, remove)
    jobs = Counter(job.qos for job in slurm.queue()) if ours else Counter[str]()
    used = {name: jobs[name] for name in ours if jobs[name]}
    if remove:
        taken_out = planning.removal(_accounts(store), held, app.config.contract.qos_prefix, used)
        unbooked = tuple(Unbook(one) for one in slurm.bookings())
        return _Todo((*unbooked, *taken_out), (*_used_notes(used), *((PLUGIN_FIRST,) if ours else ())), used)
    changes, notes = _plan(app, store, held, used)
    return _Todo(changes, (*notes, *_used_notes(used)), used)


def _leaving(app: App, held: Held, remove: bool) -> tuple[str, ...]:
    """Our QOS that are to go: all of them, or the rungs that the settings no longer have."""
    prefix = app.config.contract.qos_prefix
    if remove:
        return tuple(sorted(name for name in held.qos if name.startswith(prefix)))
    return planning.retired(app.config.ladder, held, prefix)


def _used_notes(used: Mapping[str, int]) -> tuple[str, ...]:
    return tuple(
        f"{name} stays for now, and the access to it: {count} {'job is' if count == 1 else 'jobs are'} still in it "
        f"(squeue --qos={name}). Run this again when they have left; a pending job can be moved with "
        "`scontrol update JobId=ID QOS=NAME`."
        for name, count in used.items()
    )


def _plan(app: App, store: Store, held: Held, used: Mapping[str, int]) -> tuple[Sequence[Change], tuple[str, ...]]:
    from slurm_fairshare.daemon.tick import in_order, recompute, users_ranked

    window, ranking = recompute(store, app.config, app.now)
    ranking = in_order(ranking, store.latest_queue(), app.config, app.now)
    users = users_ranked(store, app.config, window, app.now)
    ladder, prefix = app.config.ladder, app.config.contract.qos_prefix
    changes = (
        *planning.plan(ranking, ladder, app.config.lane, held, users),
        *planning.retirement(ladder, held, prefix, used),
    )
    notes = account_notes(planning.unknown_accounts(ranking, held), planning.unbudgeted_accounts(ranking, held))
    if _fresh(app, store):
        return changes, notes
    return [one for one in changes if not isinstance(one, SetPriority | ClearUserPriority | SetUserPriority)], (
        LABELS_LEFT,
        *notes,
    )


def _fresh(app: App, store: Store) -> bool:
    tick = store.last_tick()
    return tick is not None and app.now - tick.at <= app.config.rebalance.max_age


def _accounts(store: Store) -> list[str]:
    """Accounts of every tree there ever was: one that has left the tree may still hold what is ours."""
    return sorted(
        {
            share.account
            for changeset in store.changesets()
            for shares in changeset.sets.values()
            for share in shares
            if share.account is not None
        }
    )
