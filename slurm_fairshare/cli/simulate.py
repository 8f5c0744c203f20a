"""`simulate`: predict what a policy or a knob would do, on a recorded or an invented workload."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import rich_click as click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.options import HELP, config_option, json_option, point_in_time
from slurm_fairshare.core.tree import Changeset, Tree, tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import ConfigError
from slurm_fairshare.sim import html, study, table, trace
from slurm_fairshare.sim.engine import Timing
from slurm_fairshare.sim.jobs import Machine, NodeSpec, Workload
from slurm_fairshare.sim.scenario import load

Command = Callable[..., Any]


@click.group(context_settings=HELP)
@config_option
def simulate() -> None:
    """Predict: run a workload under one policy or several, and see who gets what and who waits."""


def _workload_options(command: Command) -> Command:
    options = [
        click.argument("scenario", required=False, type=click.Path(path_type=Path, dir_okay=False)),
        click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Jobs: CSV, Parquet or .swf."),
        click.option("--sacct", type=click.Path(path_type=Path), metavar="FILE", help="Jobs: the output of sacct -P."),
        click.option("--from-ledger", is_flag=True, help="Jobs: what this site's ledger has recorded."),
        click.option(
            "--since", default="30d", show_default=True, metavar="WHEN", help="How far back, with --from-ledger."
        ),
        click.option(
            "--shares", type=click.Path(path_type=Path), metavar="FILE", help="Budgets of a trace: path,weight."
        ),
        click.option("--nodes", metavar="NxG", help="The machine of a trace: 64x8, or 64x8:h100,16x4:a100."),
        click.option("--set", "turned", multiple=True, metavar="KNOB=VALUE", help="Turn a knob; may be repeated."),
        click.option("--ideal", is_flag=True, help="A scheduler that needs no time, in place of Slurm's pace."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@simulate.command(context_settings=HELP)
@_workload_options
@click.option(
    "--policy",
    default="budget",
    show_default=True,
    type=click.Choice(list(study.POLICIES)),
    help="Who decides the order, and who is stopped.",
)
@click.option("--seed", default=1, show_default=True, help="Of a scenario.")
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report with pictures."
)
@click.option("--jobs-to", type=click.Path(path_type=Path), metavar="FILE", help="Write the jobs as a trace.")
@json_option
@config_option
@click.pass_context
def run(
    context: click.Context,
    /,
    policy: str,
    seed: int,
    html_file: Path | None,
    jobs_to: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run one policy once."""
    case = replace(_base(context, given), policy=policy, seed=seed)
    result, one = _with_bar([case])[0]
    if jobs_to is not None:
        jobs_to.write_text(trace.write_csv(result.workload), encoding="utf-8")
    if html_file is not None:
        html_file.write_text(html.page([(result, one)]), encoding="utf-8")
    _print({policy: [one]}, as_json)


@simulate.command(context_settings=HELP)
@_workload_options
@click.option("--policies", default=",".join(study.IN_GENERAL), show_default=True, help="Comma separated.")
@click.option("--seeds", default="1", show_default=True, metavar="LIST", help="1-3 or 1,2,5; one proves little.")
@click.option("--workers", default=1, show_default=True, help="Cores to use.")
@click.option(
    "--html", "html_file", type=click.Path(path_type=Path), metavar="FILE", help="Write the report with pictures."
)
@json_option
@config_option
@click.pass_context
def compare(
    context: click.Context,
    /,
    policies: str,
    seeds: str,
    workers: int,
    html_file: Path | None,
    as_json: bool,
    **given: Any,
) -> None:
    """Run several policies on the same workload and put their figures side by side."""
    base = _base(context, given)
    names = [name.strip() for name in policies.split(",")]
    odd = [name for name in names if name not in study.POLICIES]
    if odd:
        raise click.BadParameter(f"no policy {', '.join(odd)}; there are {', '.join(study.POLICIES)}")
    cases = [replace(base, policy=name, seed=seed) for name in names for seed in _numbers(seeds)]
    if html_file is not None:
        done = _with_bar(cases)
        first = [pair for pair, case in zip(done, cases, strict=True) if case.seed == cases[0].seed]
        html_file.write_text(html.page(first), encoding="utf-8")
        scored = [one for _, one in done]
    else:
        scored = _scored_with_bar(cases, workers)
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for case, one in zip(cases, scored, strict=True):
        columns[case.policy].append(one)
    _print(columns, as_json)


@simulate.command(context_settings=HELP)
@_workload_options
@click.option(
    "--policy",
    default="budget",
    show_default=True,
    type=click.Choice(list(study.POLICIES)),
    help="Who decides the order, and who is stopped.",
)
@click.option("--grid", "axes", multiple=True, required=True, metavar="KNOB=A,B,C", help="An axis; may be repeated.")
@click.option("--seeds", default="1-3", show_default=True, metavar="LIST", help="Of a scenario: 1-3 or 1,2,5.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), required=True, help="Folder of the results.")
@click.option("--workers", default=1, show_default=True, help="Cores of this machine to use.")
@click.option("--submitit", metavar="PARTITION", help="Run as a job array on the Slurm of this machine instead.")
@config_option
@click.pass_context
def sweep(
    context: click.Context,
    /,
    policy: str,
    axes: Sequence[str],
    seeds: str,
    out: Path,
    workers: int,
    submitit: str | None,
    **given: Any,
) -> None:
    """Try a grid of knobs. What is in the folder already is not run again."""
    base = replace(_base(context, given), policy=policy)
    knobs = dict(_axis(axis) for axis in axes)
    cases = study.grid(base, knobs, _numbers(seeds))
    executor = _executor(out, submitit) if submitit else None
    with _bar() as bar:
        task = bar.add_task("cases", total=len(cases))
        for done, _ in study.sweep(cases, out, workers, executor):
            bar.update(task, completed=done)
    rows = study.rows_of(cases, out)
    study.write_parquet(rows, out / "results.parquet")
    _show(table.sweep_table(study.by_setting(rows, list(knobs)), list(knobs)))


# --- what the options say ----------------------------------------------------------------------------


def _base(context: click.Context, given: dict[str, Any]) -> study.Case:
    case = study.Case("budget")
    if given["scenario"] is not None:
        case = replace(case, scenario=load(given["scenario"]))
    else:
        case = replace(case, workload=_trace(context, given), machine=_machine(given["nodes"]))
    if given["ideal"]:
        case = replace(case, timing=Timing.ideal())
    return study.turn(case, dict(_pair(text) for text in given["turned"]))


def _trace(context: click.Context, given: dict[str, Any]) -> Workload:
    shares = trace.read_shares(given["shares"]) if given["shares"] else None
    if given["trace"] is not None:
        return trace.read(given["trace"], shares)
    if given["sacct"] is not None:
        workload = trace.from_sacct(given["sacct"].read_text(encoding="utf-8"))
        return replace(workload, shares=shares) if shares else workload
    if given["from_ledger"]:
        return _ledger(context, given["since"], shares)
    raise click.UsageError("what is to be simulated? Give a scenario, --trace FILE, --sacct FILE or --from-ledger")


def _ledger(context: click.Context, since: str, shares: dict[str, float] | None) -> Workload:
    app = context.find_root().ensure_object(App)
    window = Window(point_in_time(since, app.now, app.config.zone), app.now)
    with app.store() as store:
        runs = store.runs(window)
        changes: Sequence[Changeset] = store.changesets()
    return trace.from_runs(runs, shares or _weights(tree_at(changes, app.now)), "ledger")


def _weights(tree: Tree) -> dict[str, float] | None:
    """The budgets in force; a leaf goes by its account's name, as the simulator binds it."""
    found: dict[str, float] = {}
    for path, node in tree.nodes.items():
        above = path.rpartition("/")[0]
        found[f"{above}/{node.account}".lstrip("/") if node.account else path] = node.weight
    return found or None


def _machine(text: str | None) -> Machine:
    if text is None:
        raise click.UsageError("which machine? Write --nodes 64x8, or --nodes 64x8:h100,16x4:a100")
    nodes: list[NodeSpec] = []
    for part in text.split(","):
        size, _, kind = part.partition(":")
        count, _, gpus = size.partition("x")
        if not (count.isdecimal() and gpus.isdecimal()):
            raise click.BadParameter(f"{part!r} is no machine: write 64x8 or 64x8:h100")
        nodes.extend(Machine.uniform(int(count), int(gpus), kind).nodes)
    return Machine(tuple(node._replace(name=f"n{i:04d}") for i, node in enumerate(nodes, 1)))


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.BadParameter(f"{text!r}: write KNOB=VALUE; there are {', '.join(sorted(study.KNOBS))}")
    return name, value


def _axis(text: str) -> tuple[str, list[str]]:
    name, values = _pair(text)
    return name, values.split(",")


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise click.BadParameter(f"{text!r} is no list of seeds: write 1-3 or 1,2,5")
        found.extend(range(int(first), int(last if dash else first) + 1))
    return found


def _executor(out: Path, partition: str) -> Any:
    try:
        import submitit
    except ImportError as error:
        raise ConfigError("--submitit needs the package of that name: pip install submitit") from error
    executor = submitit.AutoExecutor(folder=str(out / "submitit"))
    executor.update_parameters(slurm_partition=partition, timeout_min=240, cpus_per_task=1)
    return executor


# --- what is shown -----------------------------------------------------------------------------------


def _bar() -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def _with_bar(cases: Sequence[study.Case]) -> list[tuple[Any, Any]]:
    done = []
    with _bar() as bar:
        for case in cases:
            task = bar.add_task(f"{case.policy}, seed {case.seed}", total=1.0)
            done.append(case.run(lambda now, of, task=task: bar.update(task, completed=now / max(1, of))))
            bar.update(task, completed=1.0)
    return done


def _scored_with_bar(cases: Sequence[study.Case], workers: int) -> list[Any]:
    if workers <= 1:
        return [one for _, one in _with_bar(cases)]
    found: dict[int, Any] = {}
    with _bar() as bar:
        task = bar.add_task("simulations", total=len(cases))
        for index, one in study.scores(cases, workers):
            found[index] = one
            bar.advance(task)
    return [found[index] for index in range(len(cases))]


def _print(columns: dict[str, list[Any]], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(table.as_json(columns), indent=1, sort_keys=True))
        return
    _show(table.comparison(list(columns.values())))


def _show(rows: Sequence[Sequence[str]]) -> None:
    console = Console(file=sys.stdout)
    if not console.is_terminal:
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        for row in rows:
            click.echo("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
        return
    shown = Table(box=None, pad_edge=False)
    for i, name in enumerate(rows[0]):
        shown.add_column(name, justify="left" if i == 0 else "right")
    for row in rows[1:]:
        shown.add_row(*row)
    console.print(shown)
