"""The reference pages of commands and settings, written from the code: `python -m slurm_fairshare.cli.reference`.

A test holds docs/reference/ to what this prints, so a page cannot say what the program does not do.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from slurm_fairshare.cli.main import main as program
from slurm_fairshare.config import PLACES, Config
from slurm_fairshare.metrics import METRICS, WAIT_BUCKETS
from slurm_fairshare.reports import (
    adjustments,
    audit,
    budget_check,
    budget_log,
    budget_preview,
    budgets,
    changes,
    decisions,
    delivery,
    doctor,
    drain,
    habits,
    managers,
    pyramid,
    queue,
    settings,
    shares,
    status,
    usage,
    waits,
)
from slurm_fairshare.reports.table import Column, json_key

FIELDS: dict[str, Sequence[Column[Any]]] = {
    "shares": shares.COLUMNS,
    "queue": queue.COLUMNS,
    "decisions": decisions.COLUMNS,
    "delivery": delivery.COLUMNS,
    "pyramid": pyramid.COLUMNS,
    "waits": waits.COLUMNS,
    "habits": habits.COLUMNS,
    "usage": usage.COLUMNS,
    "audit": audit.COLUMNS,
    "adjust": adjustments.COLUMNS,
    "budget show": budgets.COLUMNS,
    "budget log": budget_log.COLUMNS,
    "budget diff": budgets.DIFFERENCES,
    "budget check": budget_check.COLUMNS,
    "budget preview": budget_preview.COLUMNS,
    "budget managers": managers.COLUMNS,
    "plan": changes.COLUMNS,
    "doctor": doctor.COLUMNS,
    "status": status.COLUMNS,
    "drain": drain.COLUMNS,
    "settings show": settings.COLUMNS,
}
"""The fields of each report, by its command."""

MADE = "<!-- Written by `python -m slurm_fairshare.cli.reference`. Change the code, not this page. -->"


def commands_page() -> str:
    lines = [
        MADE,
        "",
        "# Commands",
        "",
        "`slurm-fairshare` and its short alias `sfair` are the same program. Errors go to standard error, one message,",
        "and the program ends with 1, or with 2 where what was written (options, settings, a budget file) is at fault.",
        "Reports are plain text where no terminal reads them.",
        "",
        *_overview(),
    ]
    for name, command in _commands(program, ""):
        lines += ["", *_command(name, command)]
    return "\n".join(lines).rstrip() + "\n"


def _overview() -> Iterator[str]:
    yield from _table(
        ("command", "what it does"),
        [
            (f"[`{name}`](#{name.replace(' ', '-')})", _help(command).split("\n\n")[0].replace("\n", " "))
            for name, command in _commands(program, "")
        ],
    )


def _commands(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by its words, in the order of the alphabet."""
    for name in sorted(group.commands):
        command = group.commands[name]
        if isinstance(command, click.Group):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def _command(name: str, command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=f"slurm-fairshare {name}", **command.context_settings)
    usage = " ".join([f"slurm-fairshare {name}", *command.collect_usage_pieces(context)])
    yield from (f"## {name}", "", "```text", usage, "```", "")
    for paragraph in _help(command).split("\n\n"):
        fenced = paragraph.startswith("\b")
        shown = paragraph.splitlines()[1:]
        language = "sh" if fenced and shown[0].startswith("slurm-fairshare ") else "yaml"
        yield from ([f"```{language}", *shown, "```", ""] if fenced else [paragraph, ""])
    options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    yield from _table(("option", "meaning"), [(_declared(one, context), _meaning(one)) for one in options])
    if name in FIELDS:
        yield from ("", "Fields (`-o`; in JSON under the second name):", "")
        rows = [(f"`{one.name}`", f"`{json_key(one.name)}`", one.about) for one in FIELDS[name]]
        yield from _table(("field", "JSON", "meaning"), rows)


def _help(command: click.Command) -> str:
    return inspect.cleandoc(command.help or "")


def _declared(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} `{option.make_metavar(context)}`"


def _meaning(option: click.Option) -> str:
    default = f" Default: `{option.default}`." if option.show_default else ""
    return (option.help or "") + default


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def settings_page() -> str:
    found = settings.settings_of(Config.model_construct())
    places = ", ".join(f"`{place}`" for place in PLACES)
    lines = [
        MADE,
        "",
        "# Settings",
        "",
        f"One TOML file: the one given with `--config`, else `$SLURM_FAIRSHARE_CONFIG`, else the first of {places}.",
        "The environment wins over the file. Lengths of time are written with their unit: `7d`, `15m`, `90s`, `1h30m`.",
        "A name that is not here is an error. `slurm-fairshare settings show` prints what is in force.",
        "",
        "The database's address with its password belongs in `SLURM_FAIRSHARE_DATABASE_URL`, not in the file.",
    ]
    sections: dict[str, list[settings.Setting]] = {}
    for one in found:
        sections.setdefault(one.name.rpartition(".")[0], []).append(one)
    for section, members in sections.items():
        field = Config.model_fields.get(section)
        about = inspect.cleandoc(field.annotation.__doc__ or "") if field and field.annotation else "At the top."
        lines += ["", f"## {f'[{section}]' if section else 'Without a section'}", "", about, ""]
        rows = [
            (
                f"`{one.name.rpartition('.')[2]}`",
                f"`{one.default}`" if one.default else "",
                one.about,
                f"`{one.variable}`",
            )
            for one in members
        ]
        lines += _table(("setting", "default", "meaning", "variable"), rows)
    return "\n".join(lines) + "\n"


def doctor_page() -> str:
    return f"{MADE}\n\n{doctor.page()}"


def metrics_page() -> str:
    lines = [
        MADE,
        "",
        "# Metrics",
        "",
        "`slurm-fairshare metrics` prints them; the daemon serves them at `/metrics` where `metrics.listen` is set.",
        "All are read from Postgres: a scrape costs Slurm nothing. What is not known is left out, never shown as zero.",
        "Leaves are named by their Slurm account and by their path in the budget tree. Alert rules are in",
        "`monitoring/alerts.yml`, a Grafana dashboard in `monitoring/grafana.json`.",
        "",
        *_table(
            ("metric", "type", "labels", "unit", "meaning"),
            [
                (f"`{one.full}`", one.kind, ", ".join(f"`{label}`" for label in one.labels), one.unit, one.about)
                for one in METRICS
            ],
        ),
        "",
        "Buckets of the waits, in seconds: " + ", ".join(str(bound) for bound in WAIT_BUCKETS) + ".",
    ]
    return "\n".join(lines) + "\n"


PAGES = {
    "commands.md": commands_page,
    "settings.md": settings_page,
    "metrics.md": metrics_page,
    "doctor.md": doctor_page,
}


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/reference"))
