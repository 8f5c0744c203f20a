"""`doctor`: findings as people read them, and as columns for programs; the page that lists every check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.text import Text

from slurm_fairshare.core.doctor import GROUPS, UNREAD, Check, Examination, Finding, Severity
from slurm_fairshare.core.doctor.health import BUGS
from slurm_fairshare.reports.table import Column, Report, wrap

INDENT = "    "
_PAINT = {Severity.ERROR: "bold red", Severity.WARNING: "yellow", Severity.ADVICE: "cyan"}

COLUMNS: tuple[Column[Finding], ...] = (
    Column("Severity", lambda one: one.severity.word, "error, warning or advice"),
    Column("Check", lambda one: one.name, "name of the check; it stays the same from version to version"),
    Column("Subject", lambda one: one.subject, "what it concerns, where that is one thing among several"),
    Column("Wrong", lambda one: one.wrong, "what is wrong"),
    Column("Why", lambda one: one.why, "why it matters"),
    Column("Place", lambda one: one.line.place, "where to write: a file, or shell"),
    Column("Write", lambda one: one.line.text, "the line to write"),
)


def report(examination: Examination) -> Report[Finding]:
    """For programs. JSON also tells which checks were made and which were not."""
    return Report(
        noun="findings",
        columns=COLUMNS,
        rows=examination.findings,
        shown=("Severity", "Check", "Wrong"),
        script=("Severity", "Check", "Subject", "Wrong", "Place", "Write"),
        facts={
            "worst": examination.worst.word if examination.worst else None,
            "made": list(examination.made),
            "left_out": list(examination.left_out),
        },
        empty="Nothing was found.",
    )


def told(examination: Examination, width: int | None) -> Text:
    """For people: each finding a paragraph with what is wrong, why it matters and what to write; worst first."""
    lines: list[Text] = []
    for finding in examination.findings:
        lines += [*_paragraph(finding, width), Text("")]
    lines += wrap(Text(summary(examination)), width)
    return Text("").join(part for line in lines for part in (line, Text("\n")))


def _paragraph(finding: Finding, width: int | None) -> Iterator[Text]:
    room = None if width is None else max(width - len(INDENT), 20)
    yield Text(f"{finding.severity.word}: {finding.name}", style=_PAINT[finding.severity])
    for part in wrap(Text(_printable(finding.wrong)), room):
        yield Text(INDENT) + part
    for part in wrap(Text(_printable(finding.why), style="dim"), room):
        yield Text(INDENT) + part
    yield Text(f"{INDENT}{'Run' if finding.line.place == 'shell' else f'In {finding.line.place}'}:")
    for line in finding.line.text.split("\n"):
        yield Text(f"{INDENT}{INDENT}{_printable(line)}", style="bold")


def _printable(words: str) -> str:
    """Names come from users and from other programs: nothing in them may reach the terminal as a command."""
    return "".join(char if char.isprintable() else "?" for char in words.replace("\n", " "))


def summary(examination: Examination) -> str:
    count = Counter(finding.severity for finding in examination.findings)
    parts = [_plural(count[severity], severity.word) for severity in sorted(Severity, reverse=True) if count[severity]]
    made, left_out = len(examination.made), len(examination.left_out)
    checks = _plural(made, "check") + (f" made, {left_out} left out" if left_out else " made")
    return f"{', '.join(parts) or 'Nothing is wrong'}; {checks}."


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 or word == "advice" else f"{number} {word}s"


def page() -> str:
    """The reference page: every check, by group, with its question and its reason."""
    lines = [
        "# What doctor checks",
        "",
        "`slurm-fairshare doctor` reads how Slurm, Postgres and the daemon are set up, and says what is wrong, why it",
        "matters and the line to write. It never changes anything. Run it as the daemon's user, on the controller or",
        "with `slurm.command_prefix` pointing there: some checks read slurm.conf and job_submit.lua.",
        "",
        "It ends with 2 where it found an error, with 1 where it found a warning, and with 0 where nothing is worse",
        "than advice. (A settings file that cannot be used ends with 2 as everywhere, before anything is read.)",
        "",
        "| severity | meaning |",
        "| --- | --- |",
        "| error | a promise is broken: protection, order, accounting, or the health of Slurm or the daemon |",
        "| warning | something works worse than it should, or will break |",
        "| advice | it works; this would make it better, or is good to know |",
        "",
        "The severity below is the worst a check finds; a harmless form of the fault is milder. Names of checks stay",
        "the same from version to version. What could not be read is a finding of its own (`"
        + UNREAD
        + "`), and the checks",
        "that need it are not made: nothing unknown counts as right.",
    ]
    for group in GROUPS:
        lines += ["", f"## {group.title}", "", "| check | severity | question | why |", "| --- | --- | --- | --- |"]
        lines += [_row(check) for check in group.all]
    lines += ["", "## Bugs of Slurm that `known-bug` knows", "", "| name | severity | from | corrected in | what |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for bug in BUGS:
        fixed = ", ".join(_version(one) for one in bug.fixed)
        lines.append(f"| `{bug.name}` | {bug.severity.word} | {_version(bug.since)} | {fixed} | {bug.words} |")
    return "\n".join(lines) + "\n"


def _row(check: Check) -> str:
    return f"| `{check.name}` | {check.severity.word} | {check.asks} | {check.why} |"


def _version(release: tuple[int, int, int]) -> str:
    return f"{release[0]}.{release[1]:02d}.{release[2]}"
