"""History from slurmdbd: sacct's rows become runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import RejectedRow, Run
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import DateRangeRefused
from slurm_fairshare.slurm.jobid import read_label
from slurm_fairshare.slurm.pin import contract_of
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.times import moment, needed
from slurm_fairshare.slurm.tres import resources

FIELDS = (
    "JobIDRaw",
    "JobID",
    "DBIndex",
    "Cluster",
    "Account",
    "UID",
    "User",
    "Partition",
    "QOS",
    "State",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "AllocTRES",
    "NodeList",
    "AdminComment",
)
"""AdminComment last: the only text of any length. No field that a user writes is asked for."""

DELIMITER = "\x1f"
SLICE = timedelta(days=1)
BEFORE_SLURM = datetime(2002, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_NO_NODES = frozenset({"None assigned", "None", "(null)"})


@dataclass(frozen=True, slots=True)
class RowReader:
    """Turns rows into runs: what counts as charged, what a GPU costs, and when the rows were read."""

    ladder: Ladder
    rule: ChargeRule
    now: datetime
    whole: Resources | None = None
    """The cluster's resources, for a rule that needs them (dominant)."""

    def run(self, values: dict[str, str]) -> Run:
        """One row as a run. Raises ValueError with the reason for a row that cannot be read."""
        held, odd_gpus = resources(values["AllocTRES"])
        qos = values["QOS"]
        contract, odd_pin = contract_of(values["AdminComment"].strip(), qos, self.ladder)
        start, end, odd_times = self._times(moment(values["Start"]), moment(values["End"]))
        submit = needed(values["Submit"], "Submit")
        read_label(values["JobID"])
        job_id = int(values["JobIDRaw"])
        return Run(
            cluster=values["Cluster"],
            key=_key(values["DBIndex"], job_id, submit),
            job_id=job_id,
            label=values["JobID"],
            account=_required(values, "Account"),
            user=values["User"],
            uid=int(values["UID"]),
            partition=values["Partition"],
            qos=qos,
            state=_required(values, "State").split()[0],
            submit=submit,
            eligible=moment(values["Eligible"]),
            start=start,
            end=end,
            held=held,
            milli_gpus=self.rule.milli_gpus(held, self.whole),
            charged=self.ladder.is_charged(qos),
            contract=contract,
            nodes="" if values["NodeList"] in _NO_NODES else values["NodeList"],
            flag="; ".join(odd for odd in (odd_gpus, odd_times, odd_pin) if odd),
        )

    def _times(self, start: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None, str]:
        if start is not None and start < BEFORE_SLURM:
            return None, None, f"Start {start:%Y-%m-%dT%H:%M:%SZ} lies before there was a Slurm"
        if start is not None and start > self.now:
            return None, None, f"Start {start:%Y-%m-%dT%H:%M:%SZ} lies in the future"
        if start is not None and end is not None and end < start:
            return start, start, f"End {end:%Y-%m-%dT%H:%M:%SZ} lies before Start"
        return start, end, ""


def _required(values: dict[str, str], name: str) -> str:
    if not values[name].strip():
        raise ValueError(f"{name} is empty")
    return values[name]


def _key(index: str, job_id: int, submit: datetime) -> str:
    """Slurm's number for the attempt, as text (since 24.11 it does not fit 63 bits); else job and submit."""
    if index.isascii() and index.isdigit() and int(index) > 0:
        return index
    return f"{job_id}-{int(submit.timestamp())}"


def parse_rows(
    text: str, reader: RowReader, delimiter: str = DELIMITER, closed: bool = True
) -> tuple[tuple[Run, ...], tuple[RejectedRow, ...]]:
    """All rows of `sacct -p` (each field, the last too, has the delimiter behind it).

    A newline inside a field does not end a row. `closed=False` reads `-P`, which has no last delimiter: there a
    newline in a field does end the row, and both halves are rejected.
    """
    runs: list[Run] = []
    rejected: list[RejectedRow] = []
    for row in _rows(text, f"{delimiter}\n" if closed else "\n"):
        values = row.split(delimiter)
        try:
            if len(values) != len(FIELDS):
                raise ValueError(f"{len(values)} fields where {len(FIELDS)} were asked for")
            runs.append(reader.run(dict(zip(FIELDS, values, strict=True))))
        except (ValueError, OverflowError, OSError) as error:
            rejected.append(RejectedRow("sacct", row.replace(delimiter, "|"), str(error)))
    return tuple(runs), tuple(rejected)


def _rows(text: str, end: str) -> Iterator[str]:
    return (row for row in text.split(end) if row.strip())


@dataclass(slots=True)
class Sacct:
    """Asks sacct, a day at a time, one question after the other."""

    runner: Runner
    reader: Callable[[], RowReader]

    def runs(self, window: Window) -> tuple[tuple[Run, ...], tuple[RejectedRow, ...]]:
        """Every attempt that overlaps the window, each once; those that wait or just missed it may be there too.

        Without a state filter sacct selects what was eligible before the end and had not ended before the
        start. An attempt is eligible before it starts, so no attempt inside the window can be missing.
        """
        found: dict[tuple[str, str], Run] = {}
        rejected: dict[str, RejectedRow] = {}
        for text in self._answers(window):
            runs, refused = parse_rows(text, self.reader())
            found.update({(run.cluster, run.key): run for run in runs})
            rejected.update({row.text: row for row in refused})
        return tuple(sorted(found.values(), key=_order)), tuple(rejected.values())

    def _answers(self, window: Window) -> Iterator[str]:
        waiting = list(reversed(slices(window)))
        while waiting:
            part = waiting.pop()
            try:
                answer = self._ask(part)
            except DateRangeRefused:
                halves = halved(part)
                if not halves:
                    raise
                waiting.extend(reversed(halves))
            else:
                yield answer

    def _ask(self, part: Window) -> str:
        start, end = math.floor(part.start.timestamp()), math.ceil(part.end.timestamp())
        words = ["-a", "-X", "-D", "-n", "-p", "--noconvert", f"--delimiter={DELIMITER}"]
        return self.runner.read("sacct", *words, "-S", f"uts{start}", "-E", f"uts{end}", "-o", ",".join(FIELDS)).stdout


def _order(run: Run) -> tuple[datetime, int, str]:
    return run.start or run.submit, run.job_id, run.key


def slices(window: Window) -> list[Window]:
    """The window in parts of a day at most, adjacent and in order."""
    edges = [window.start]
    while edges[-1] + SLICE < window.end:
        edges.append(edges[-1] + SLICE)
    return [Window(a, b) for a, b in pairwise([*edges, window.end])]


def halved(part: Window) -> list[Window]:
    """The two halves, cut at a whole second; none if it is a second long or less."""
    half = timedelta(seconds=int(part.seconds) // 2)
    if half < _SECOND:
        return []
    return [replace(part, end=part.start + half), replace(part, start=part.start + half)]
