"""History from slurmdbd: sacct's rows become runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

from slurm_fairshare.core.contract import Contract, Ladder
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
CLOCKS_APART = timedelta(minutes=1)
BEFORE_SLURM = datetime(2002, 1, 1, tzinfo=UTC)
_SECOND = timedelta(seconds=1)
_NO_NODES = frozenset({"None assigned", "None", "(null)"})


@dataclass(frozen=True, slots=True)
class RowReader:
    """Turns rows into runs: what counts as charged, what a GPU costs, and when the rows were read.

    Many rows say the same about GPUs, contract and QOS and name the same moments; what that amounts to is worked out
    once.
    """

    ladder: Ladder
    rule: ChargeRule
    now: datetime
    whole: Resources | None = None
    """The cluster's resources, for a rule that needs them (dominant)."""
    _held: dict[str, tuple[Resources, int, str]] = field(default_factory=dict, compare=False, repr=False)
    _terms: dict[tuple[str, str], tuple[Contract | None, str, bool]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _moment: Callable[[str], datetime | None] = field(default_factory=lambda: cache(moment), compare=False, repr=False)

    def run(self, row: Sequence[str]) -> Run:
        """One row, its values in the order of FIELDS, as a run. ValueError with the reason if it cannot be read."""
        (
            raw_id,
            label,
            index,
            cluster,
            account,
            uid,
            user,
            partition,
            qos,
            state,
            submitted,
            eligible,
            started,
            ended,
            tres,
            nodes,
            admin_comment,
        ) = row
        held, milli_gpus, odd_gpus = self._held.get(tres) or self._hold(tres)
        contract, odd_pin, charged = self._terms.get((admin_comment, qos)) or self._promise(admin_comment, qos)
        start, end, odd_times = self._times(self._moment(started), self._moment(ended))
        submit = self._moment(submitted) or needed(submitted, "Submit")
        if label != raw_id:
            read_label(label)
        job_id = int(raw_id)
        return Run(
            cluster,
            _key(index, job_id, submit),
            job_id,
            label,
            _required(account, "Account"),
            user,
            int(uid),
            partition,
            qos,
            _required(state, "State").split()[0],
            submit,
            self._moment(eligible),
            start,
            end,
            held,
            milli_gpus,
            charged,
            contract,
            "" if nodes in _NO_NODES else nodes,
            "; ".join(filter(None, (odd_gpus, odd_times, odd_pin))) if odd_gpus or odd_times or odd_pin else "",
        )

    def _hold(self, tres: str) -> tuple[Resources, int, str]:
        held, odd = resources(tres)
        self._held[tres] = found = (held, self.rule.milli_gpus(held, self.whole), odd)
        return found

    def _promise(self, admin_comment: str, qos: str) -> tuple[Contract | None, str, bool]:
        contract, odd = contract_of(admin_comment.strip(), qos, self.ladder)
        self._terms[admin_comment, qos] = found = (contract, odd, self.ladder.is_charged(qos))
        return found

    def _times(self, start: datetime | None, end: datetime | None) -> tuple[datetime | None, datetime | None, str]:
        if start is not None and end is not None and BEFORE_SLURM <= start <= end <= self.now:
            return start, end, ""
        if start is not None and start < BEFORE_SLURM:
            return None, None, f"Start {start:%Y-%m-%dT%H:%M:%SZ} lies before there was a Slurm"
        if start is not None and start > self.now:
            return None, None, f"Start {start:%Y-%m-%dT%H:%M:%SZ} lies in the future"
        if end is not None and end > self.now + CLOCKS_APART:
            return start, None, f"End {end:%Y-%m-%dT%H:%M:%SZ} lies in the future"
        if start is not None and end is not None and end < start:
            return start, start, f"End {end:%Y-%m-%dT%H:%M:%SZ} lies before Start"
        return start, end, ""


def _required(value: str, name: str) -> str:
    if not value.strip():
        raise ValueError(f"{name} is empty")
    return value


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
            runs.append(reader.run(values))
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
