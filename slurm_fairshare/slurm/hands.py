"""What is done to a job: a note, a notice, a requeue, an end."""

from __future__ import annotations

import re

from slurm_fairshare.core.cluster import Job
from slurm_fairshare.errors import SlurmRefused
from slurm_fairshare.slurm.changes import ADMINISTRATOR, OPERATOR
from slurm_fairshare.slurm.run import Runner

NOTE_LENGTH = 1024
"""Longest AdminComment kept. Slurm has limits on what it stores with a job; a note is no log."""

STEPS = "steps"

_SIGNAL = re.compile(r"[A-Z][A-Z0-9]{1,9}")
_GONE = re.compile(r"already completing or completed|invalid job id|already finished|job has finished", re.IGNORECASE)


def with_note(comment: str, words: str) -> str:
    """The words behind what is there, cut at NOTE_LENGTH. The pin, which stands first, is never cut.

    >>> with_note("fairshare min_runtime=60 resumable=no priority=low", "requeued for 17")
    'fairshare min_runtime=60 resumable=no priority=low; requeued for 17'
    """
    line = " ".join(words.split())
    kept = f"{comment}; {line}" if comment else line
    if len(kept.encode()) <= NOTE_LENGTH:
        return kept
    # The newest words say why the job was stopped now: older ones go first.
    pin = comment.split(";", 1)[0]
    room = NOTE_LENGTH - len(pin.encode()) - 2
    return f"{pin}; {line.encode()[: max(room, 0)].decode(errors='ignore')}"


def address(job: Job) -> str:
    """How the tools are told to mean this job and no other.

    The number of an array's last task is the number of the whole array: `scontrol requeue 7` means all of array
    7, and `7_9` its task 9. A heterogeneous job goes as a whole, by its leader.
    """
    if job.het_leader:
        return str(job.het_leader)
    return job.label if re.fullmatch(r"\d+_\d+", job.label) else str(job.job_id)


def waiting_address(job: Job) -> str:
    """How a change of a job that waits is addressed: of an array only the tasks that still wait, since finished ones
    would make the whole change fail.

    Slurm prints `7_[3-9%2]` for them and takes `7_[3-9]`.
    """
    waiting = re.fullmatch(r"(\d+_\[[0-9,:-]+)(?:%\d+)?\]", job.label)
    return f"{waiting.group(1)}]" if waiting and job.pending else address(job)


def note(runner: Runner, job: Job, comment: str, words: str) -> None:
    text = with_note(comment, words)
    runner.write("scontrol", "update", f"JobId={address(job)}", f"AdminComment={text}", level=ADMINISTRATOR)


def notice(runner: Runner, job: Job, signal: str) -> None:
    """To the batch script, or with `steps:` in front (and where there is no script) to what srun started."""
    where, _, name = signal.rpartition(":")
    if where not in {"", STEPS} or not _SIGNAL.fullmatch(name):
        raise SlurmRefused(f'"{signal}" is no signal: a notice is a name such as USR1 or {STEPS}:USR1')
    to_script = ("--batch",) if not where and job.batch else ()
    runner.write("scancel", *to_script, f"--signal={name}", address(job), level=OPERATOR)


def requeue(runner: Runner, job: Job) -> None:
    runner.write("scontrol", "requeue", address(job), level=OPERATOR)


def end(runner: Runner, job: Job) -> None:
    runner.write("scancel", address(job), level=OPERATOR, unchanged=_GONE)
