"""Job ids as Slurm prints them: `123`, `123_4`, `123_[5-9%2]`, `123+1`. A step's id is none of them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LABEL = re.compile(r"(\d+)(?:_(\d+)|_\[([\d,:.\-]+)(?:%(\d+))?\]|\+(\d+))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


@dataclass(frozen=True, slots=True)
class JobLabel:
    """`job` is the number before any sign: the job, the array, or the leader of a heterogeneous job."""

    job: int
    task: int | None = None
    waiting: int = 1
    """How many array tasks the line stands for."""
    at_once: int = 0
    """How many tasks of the array may run at once; 0 = no limit."""
    component: int | None = None


def read_label(text: str) -> JobLabel:
    """Raises ValueError for anything else, steps (`123.batch`) included: an unknown id must not become job 0.

    >>> read_label("123_[5-9%2]")
    JobLabel(job=123, task=None, waiting=5, at_once=2, component=None)
    """
    match = _LABEL.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'job id "{text}" is not understood')
    job, task, tasks, at_once, component = match.groups()
    return JobLabel(
        job=int(job),
        task=None if task is None else int(task),
        waiting=1 if tasks is None else _how_many(tasks),
        at_once=int(at_once or 0),
        component=None if component is None else int(component),
    )


def _how_many(tasks: str) -> int:
    """
    >>> _how_many("1,3,5-7"), _how_many("0-8:2")
    (5, 5)
    """
    return sum(_length(part) for part in tasks.split(","))


def _length(part: str) -> int:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise ValueError(f'array tasks "{part}" are not understood')
    first, last, step = match.groups()
    if last is None:
        return 1
    if int(last) < int(first) or int(step or 1) == 0:
        raise ValueError(f'array tasks "{part}" are not understood')
    return (int(last) - int(first)) // int(step or 1) + 1
