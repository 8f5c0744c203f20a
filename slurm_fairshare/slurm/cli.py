"""Slurm behind one object, by its command line tools: the only interface that is alike from 22.05 to 26.05."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from slurm_fairshare.core.capacity import Past
from slurm_fairshare.core.cluster import Job, Node, Picture
from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.fairtree import Association
from slurm_fairshare.core.plan import Change, Disallow, Held, Unbook
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm import changes as changing
from slurm_fairshare.slurm import hands, utilisation
from slurm_fairshare.slurm.accounting import DELIMITER, RowReader, Sacct, slices
from slurm_fairshare.slurm.associations import parse_associations
from slurm_fairshare.slurm.configuration import parse_backlog
from slurm_fairshare.slurm.errands import Errands
from slurm_fairshare.slurm.events import read_past
from slurm_fairshare.slurm.nodes import parse_nodes
from slurm_fairshare.slurm.queue import EXCLUDED, Table, detail_by_node, doubtful, parse_jobs, release_of
from slurm_fairshare.slurm.reservations import Reservations
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.settings import Memo, ProcessMemo, SettingsReader
from slurm_fairshare.slurm.sreport import reported

DETAILS_AT_MOST = 8
"""How many jobs of one picture are asked for the GPUs on each of their nodes."""

_UNKNOWN_JOB = "invalid job id"

_AS_OF = re.compile(r"data as of (\d{9,11})\b")
"""slurmctld fills in its own time when it answers."""


def _utc_now() -> datetime:
    return datetime.now(UTC)


class CommandLine(Errands, Reservations):
    """The Slurm port over sacct, squeue, scontrol, sacctmgr and scancel.

    A tick in which nothing changed costs one process each of sdiag, sacct (one a day of its window), squeue, `scontrol
    show nodes` and `scontrol show assoc_mgr`, and none of sacctmgr: see SettingsReader. `memo` keeps what
    sacctmgr said beyond the life of the process. `rejected` holds the rows that the last read could not use.
    """

    def __init__(
        self,
        cluster: str,
        ladder: Ladder,
        rule: ChargeRule | None = None,
        *,
        runner: Runner | None = None,
        teller: Runner | None = None,
        memo: Memo | None = None,
        clock: Callable[[], datetime] = _utc_now,
    ) -> None:
        self.cluster = cluster
        self.runner = runner or Runner()
        self.teller = teller or self.runner
        self.rejected: tuple[RejectedRow, ...] = ()
        self._ladder = ladder
        self._rule = rule or ChargeRule()
        self._clock = clock
        self._settings = SettingsReader(self.runner, cluster, memo or ProcessMemo())
        self._release: tuple[int, int] | None = None
        self._whole: Resources | None = None

    @property
    def calls(self) -> Counter[str]:
        """Processes started so far, by tool."""
        return self.runner.calls

    # --- Accounting

    def runs(self, window: Window) -> Batch:
        sacct = Sacct(self.runner, self._row_reader)
        runs, rejected = sacct.runs(window)
        return Batch(window, runs, rejected)

    def backlog(self) -> int:
        return parse_backlog(self.runner.read("sdiag").stdout)

    def reported(self, window: Window) -> Mapping[tuple[str, str], int]:
        return reported(self.runner, self.cluster, window)

    def _row_reader(self) -> RowReader:
        if self._rule.dominant and self._whole is None:
            self._nodes()
        return RowReader(self._ladder, self._rule, self._clock(), self._whole if self._rule.dominant else None)

    def busy(self, window: Window) -> Mapping[str, float]:
        """The fraction of its GPU time in which a run's GPUs were busy, by the run's key, where Slurm tells."""
        found: dict[str, float] = {}
        for part in slices(window):
            span = ("-S", f"uts{math.floor(part.start.timestamp())}", "-E", f"uts{math.ceil(part.end.timestamp())}")
            words = ("-a", "-D", "-n", "-p", "--noconvert", f"--delimiter={DELIMITER}", *span)
            text = self.runner.read("sacct", *words, "-o", ",".join(utilisation.FIELDS)).stdout
            found.update(utilisation.parse_utilisation(text, DELIMITER))
        return found

    # --- Cluster

    def picture(self, now: datetime) -> Picture:
        """Queue first, then the nodes: a job that starts in between makes its node look fuller, never emptier."""
        jobs, nodes = self.queue(), self._nodes()
        return Picture(self.cluster, now, self._placed(jobs, nodes), nodes)

    def queue(self) -> tuple[Job, ...]:
        jobs, self.rejected = self._jobs()
        return jobs

    def _placed(self, jobs: tuple[Job, ...], nodes: tuple[Node, ...]) -> tuple[Job, ...]:
        """The jobs, with what they hold on each of their nodes asked for where it cannot be worked out."""
        asked = doubtful(jobs, nodes)
        known = {job.job_id: self._by_node(job) for job in asked[:DETAILS_AT_MOST]}
        unsure = {job.job_id: known.get(job.job_id, {}) for job in asked}
        return tuple(replace(job, by_node=unsure[job.job_id]) if job.job_id in unsure else job for job in jobs)

    def clock(self) -> datetime:
        text = self.runner.read("scontrol", "show", "config").stdout
        found = _AS_OF.search(text.partition("\n")[0])
        if found is None:
            raise SlurmUnreadable(f'scontrol show config does not say when it was made: "{text.strip()[:200]}"')
        return datetime.fromtimestamp(int(found.group(1)), UTC)

    def past(self, window: Window) -> Past:
        return read_past(self.runner, self.cluster, window)

    def job(self, job_id: int) -> Job | None:
        job = self._one(job_id)
        if job is None or len(job.nodes) < 2 or not job.holding:
            return job
        return replace(job, by_node=self._by_node(job) or job.by_node)

    def _one(self, job_id: int) -> Job | None:
        """An array's number also brings its tasks: the one whose own number it is counts."""
        try:
            jobs, _ = self._jobs(f"--jobs={job_id:d}")
        except SlurmRefused as error:
            if _UNKNOWN_JOB in str(error).lower():
                return None
            raise
        return next((job for job in jobs if job.job_id == job_id), None)

    def _jobs(self, *words: str) -> tuple[tuple[Job, ...], tuple[RejectedRow, ...]]:
        release = self.release()
        table = Table.fresh(release)
        answer = self.runner.read("squeue", "-a", "-h", "--noconvert", *words, "-O", table.format)
        if "Invalid job format" in answer.stderr:
            raise SlurmUnreadable(f'squeue does not know a column it is asked for: "{answer.words}"')
        excluded = {} if EXCLUDED in table.columns else self._excluded(*words)
        return parse_jobs(answer.stdout, table, self._ladder, excluded)

    def _excluded(self, *words: str) -> Mapping[int, str]:
        """22.05 only: the nodes a pending job excludes."""
        text = self.runner.read("squeue", "-a", "-h", "-t", "PD", *words, "-o", "%A %x").stdout
        rows = (line.split(maxsplit=1) for line in text.split("\n"))
        return {int(row[0]): row[1].strip() for row in rows if len(row) == 2 and row[0].isdigit()}

    def release(self) -> tuple[int, int]:
        """Slurm's release, as the tool says it, such as (24, 11). Asked once: no daemon is."""
        if self._release is None:
            self._release = release_of(self.runner.read("squeue", "--version").stdout)
        return self._release

    def _nodes(self) -> tuple[Node, ...]:
        nodes = parse_nodes(self.runner.read("scontrol", "-o", "show", "nodes").stdout)
        self._whole = sum_of(nodes)
        return nodes

    def _by_node(self, job: Job) -> Mapping[str, Resources]:
        """What the job holds on each node, empty if Slurm does not say or the job has just gone."""
        try:
            text = self.runner.read("scontrol", "-d", "-o", "show", "job", hands.address(job)).stdout
        except SlurmRefused as error:
            if _UNKNOWN_JOB in str(error).lower():
                return {}
            raise
        return detail_by_node(text, job)

    # --- Settings

    def held(self, refresh: bool = False) -> Held:
        return self._settings.held(self._clock(), refresh)

    def associations(self) -> tuple[Association, ...]:
        """Slurm's own shares and usage, for `shares --as-slurm`."""
        return parse_associations(self.runner.read("scontrol", "-o", "show", "assoc_mgr", "flags=assoc").stdout)

    def carry_out(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        for change in changes:
            if isinstance(change, Unbook):
                self.unbook(change.booking)
        # Only taking away depends on what is there: a default QOS that is none of ours stays.
        held = self.held() if any(isinstance(change, Disallow) for change in changes) else Held()
        todo = [(change, changing.commands(change, self.cluster, held)) for change in changes]
        # Whatever happens from here on, what is remembered may be wrong.
        self._settings.forget()
        for batch in changing.batches(todo):
            changing.carry_out(self.runner, batch)

    # --- Hands

    def note(self, job_id: int, words: str) -> None:
        job, comment = self._with_comment(job_id)
        hands.note(self.runner, job, comment, words)

    def notice(self, job_id: int, signal: str) -> None:
        hands.notice(self.runner, self._there(job_id), signal)

    def requeue(self, job_id: int) -> None:
        hands.requeue(self.runner, self._there(job_id))

    def end(self, job_id: int) -> None:
        hands.end(self.runner, self._there(job_id))

    def _there(self, job_id: int) -> Job:
        job = self._one(job_id)
        if job is None:
            raise SlurmRefused(f"job {job_id} is not in the queue (any more): nothing is left to do about it")
        return job

    def _with_comment(self, job_id: int) -> tuple[Job, str]:
        """AdminComment may hold a newline, so it is printed alone."""
        job = self._there(job_id)
        mark = Table.fresh((0, 0)).behind
        words = ("-a", "-h", f"--jobs={hands.address(job)}", "-O", f"JobID:{mark},admin_comment:{mark}")
        *values, _ = self.runner.read("squeue", *words).stdout.split(mark)
        pairs = zip(values[::2], values[1::2], strict=True)
        comments = {int(number): comment for number, comment in pairs}
        comment = comments.get(job_id, "")
        return job, "" if comment == "(null)" else comment


def sum_of(nodes: Sequence[Node]) -> Resources:
    total = Resources()
    for node in nodes:
        total = total.plus(node.total)
    return total
