"""`plan`: the changes that take Slurm from what it holds to what it should hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slurm_fairshare.core.plan import Change, describe
from slurm_fairshare.reports.table import Column, Report

NOTHING = "Nothing to change: Slurm holds what it should."


@dataclass(frozen=True, slots=True)
class Step:
    """One change with its place in the order in which they are carried out."""

    number: int
    change: Change


COLUMNS: tuple[Column[Step], ...] = (
    Column("Step", lambda step: step.number, "order in which the changes are carried out", right=True),
    Column("Kind", lambda step: type(step.change).__name__, "kind of change"),
    Column("Change", lambda step: describe(step.change), "the change in words"),
)


def report(changes: Sequence[Change], *, notes: Sequence[str] = (), nothing: str = NOTHING) -> Report[Step]:
    """`nothing` is said where there is no change; the notes follow in either case."""
    return Report(
        noun="changes",
        columns=COLUMNS,
        rows=[Step(number, change) for number, change in enumerate(changes, start=1)],
        shown=("Step", "Change"),
        script=("Step", "Kind", "Change"),
        below=tuple(notes),
        facts={"notes": list(notes)},
        empty=" ".join((nothing, *notes)),
    )
