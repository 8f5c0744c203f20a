"""`drain` and `undrain`: empty nodes as their runs pass their minimum runtime, and put them back to work."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option, dry_run_option, output_options
from slurm_fairshare.cli.output import emit, say
from slurm_fairshare.cli.ports import Store
from slurm_fairshare.core.cluster import Node, Picture
from slurm_fairshare.core.drain import MARK, Emptying, being_emptied, emptying, marked
from slurm_fairshare.core.hostlist import expand
from slurm_fairshare.daemon.rebalancing import MEMORY
from slurm_fairshare.reports import drain as report
from slurm_fairshare.reports.table import Form, Style


def _nodes(_context: click.Context, _parameter: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """Names as Slurm takes them: n1, n[1-4], several with commas or blanks."""
    found: list[str] = []
    for words in value:
        names = expand(words)
        if names is None:
            raise click.BadParameter(f'"{words}" is no list of nodes: write n1, n[1-4] or n1,n2')
        found += [name for name in names if name not in found]
    return tuple(found)


@click.command(context_settings=HELP)
@click.argument("nodes", nargs=-1, metavar="[NODE]...", callback=_nodes)
@click.option("--reason", metavar="TEXT", help="Why; Slurm shows it with the node.")
@click.option("--status", is_flag=True, help="Only show: who is still there, until when, when the node is free.")
@dry_run_option
@output_options()
@config_option
@pass_app
def drain(app: App, nodes: tuple[str, ...], reason: str | None, status: bool, dry_run: bool, form: Form) -> None:
    """Empty nodes: nothing new starts there, and each run is requeued as it passes its minimum runtime.

    Unallocated runs go at once; nothing that is protected is stopped. The daemon (or `rebalance` from cron) sees to
    it; the command says when each node will be free.
    """
    if not status and not nodes:
        raise click.UsageError("name the nodes to empty, or ask with --status how it stands")
    if not status and not (reason or "").strip():
        raise click.UsageError("say why, so that others know: --reason 'GPU 3 throws errors'")
    with app.store() as store:
        slurm = app.slurm(store)
        picture = slurm.picture(app.now)
        chosen = _known(picture, nodes) if nodes else being_emptied(picture.nodes, every=_every(app))
        if not status and not dry_run:
            slurm.drain(nodes, marked(reason or ""))
            picture = slurm.picture(app.now)
            chosen = _known(picture, nodes)
        found = _emptying(app, store, picture, chosen)
    if dry_run and form.style is Style.TABLE:
        say(["Nothing was changed: this is how it would be."])
    emit(report.report(found, app.now), form)


@click.command(context_settings=HELP)
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...", callback=_nodes)
@config_option
@pass_app
def undrain(app: App, nodes: tuple[str, ...]) -> None:
    """Put drained nodes back to work. Runs that were told to go already are not called back."""
    with app.store() as store:
        slurm = app.slurm(store)
        chosen = _known(slurm.picture(app.now), nodes)
        idle = [node.name for node in chosen if "DRAIN" not in node.states]
        names = [node.name for node in chosen if "DRAIN" in node.states]
        if names:
            slurm.undrain(names)
    said = [f"{', '.join(names)} takes jobs again."] if names else []
    said += [f"{', '.join(idle)} was not drained: nothing to do."] if idle else []
    strangers = [node.name for node in chosen if node.name in names and not node.reason.startswith(MARK)]
    said += [f"{', '.join(strangers)} had been drained by somebody else than this command."] if strangers else []
    say(said)


def _every(app: App) -> bool:
    return app.config.rebalance.empty_drained


def _known(picture: Picture, names: tuple[str, ...]) -> tuple[Node, ...]:
    there = {node.name: node for node in picture.nodes}
    unknown = [name for name in names if name not in there]
    if unknown:
        raise click.BadParameter(f"Slurm knows no node {', '.join(unknown)}; see sinfo -N", param_hint="NODE")
    return tuple(there[name] for name in names)


def _emptying(app: App, store: Store, picture: Picture, nodes: tuple[Node, ...]) -> tuple[Emptying, ...]:
    recent = store.decisions(app.now - MEMORY)
    return emptying(picture, nodes, app.config.ladder, app.config.rules, recent, app.now)
