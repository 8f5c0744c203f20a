"""What a page shows and the JSON API says: the same values for both, described once.

Amounts of GPU time are GPU-hours, GPUs on average are plain numbers, lengths of time are seconds, moments are UTC.
What is infinite or not known is null.
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from slurm_fairshare.units import moment

Moment = Annotated[datetime, PlainSerializer(moment, return_type=str, when_used="json")]
Mood = Literal["over", "under", "even", "none"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class Told(_Model):
    """An error in words, with what to do about it."""

    detail: str


class BasisView(_Model):
    """What the numbers stand on and how old they are."""

    computed: Moment = Field(description="When the data was read")
    age_seconds: float = Field(description="Seconds since then")
    stale: bool = Field(description="Whether it is older than it should ever be")
    lines: list[str] = Field(description="The same in words, STALE first")
    trouble: str = Field("", description="Why nothing newer could be read, in words")


class Line(_Model):
    """GPUs over time; each value is the mean of the time up to the next."""

    times: list[Moment]
    entitled: list[float]
    used: list[float]
    wanted: list[float]


class NodeView(_Model):
    """A node of the budget tree and how it stands over the lookback window."""

    path: str
    name: str
    depth: int = Field(description="0 for the organisations")
    account: str | None = Field(description="Slurm account of a leaf")
    share: float = Field(description="Weight among its siblings")
    of_parent: float = Field(description="Share as a fraction of the parent's")
    of_cluster: float = Field(description="Share as a fraction of the whole cluster")
    entitled: float = Field(description="GPU-hours owed in the window")
    used: float = Field(description="GPU-hours charged in the window")
    ratio: float | None = Field(description="used / entitled; null where nothing is owed and something was used")
    standing: str = Field(description="How it stands, in words")
    mood: Mood = Field(description="Over or under target, even, or none where nothing is owed")
    rank: int | None = Field(description="Place of a leaf: 1 goes first")
    line: Line | None = Field(description="GPUs over the window; null where the viewer may not see it")


class TreeView(_Model):
    """The whole tree."""

    basis: BasisView
    leaves: int = Field(description="Number of ranked accounts")
    nodes: list[NodeView] = Field(description="Parents before children")
    summary: str = Field(description="What came of the budgets in the last weeks, in a sentence")
    period: list[str] = Field(description="The time `summary` covers, in words")
    notes: list[str]
    kept_back: bool = Field(description="Whether the viewer may not see jobs and hourly usage")


class DayView(_Model):
    """One day of a node, in the site's zone; GPU-hours."""

    day: date
    entitled: float
    owed: float = Field(description="Each hour the smaller of entitlement and demand")
    used: float
    delivered: float = Field(description="Used, up to what was owed over the day, leaf by leaf")
    fraction: float | None = Field(description="delivered / owed; null where nothing was owed")


class WaitView(_Model):
    """Waits of one kind of job, in seconds."""

    kind: str
    about: str = Field(description="What jobs are of this kind")
    jobs: int
    p50: float | None
    p90: float | None
    longest: float | None
    waiting: int = Field(description="Of the jobs, those that still wait, counted as so far")


class QueueJob(_Model):
    """A job of the queue at the last picture."""

    job: str
    user: str
    account: str
    path: str | None = Field(description="Node of the budget tree, null without a budget")
    gpus: int
    contract: str
    priority: str | None = Field(description="Priority within the team")
    state: str
    position: int | None = Field(description="Place among all pending jobs, in Slurm's order")
    rank: int | None = Field(description="Place of its account: 1 goes first")
    standing: str
    mood: Mood
    since_seconds: float = Field(description="How long it has waited or run")
    protected_until: Moment | None
    protected: bool
    may_yield: bool | None = Field(description="Whether this run may be stopped now; null for a pending job")
    note: str = Field(description="Running: until when it is protected; pending: Slurm's reason")
    kept: str | None = Field(description="Why nodes are kept for it and until when, in words; null where none are")


class QueuePage(_Model):
    """One page of the queue: pending jobs in Slurm's order, then running ones."""

    basis: BasisView
    total: int
    pending: int
    running: int
    page: int = Field(description="From 1")
    pages: int
    jobs: list[QueueJob]


class TeamView(_Model):
    """A node and what is below it: what it was owed, what came of it, its waits, who is protected."""

    node: NodeView
    basis: BasisView
    accounts: list[str]
    below: list[str] = Field(description="Paths of its children")
    period: list[str] = Field(description="The time `days` cover, in words")
    summary: str
    paragraphs: list[list[str]] = Field(description="As `slurm-fairshare explain` says it")
    days: list[DayView]
    line: Line | None = Field(description="Hour by hour over the lookback window")
    waits: list[WaitView]
    waits_period: str
    protected: list[QueueJob] = Field(description="Runs that are protected now, by the end of it; at most 100")
    protected_gpus: int
    running_gpus: int
    waiting_gpus: int
    kept_back: bool


class RunView(_Model):
    """One run of a job."""

    state: str
    submitted: Moment
    started: Moment | None
    ended: Moment | None
    seconds: float | None = Field(description="How long it ran, up to now")
    gpus: int
    nodes: str
    charged: bool
    contract: str


class JobView(_Model):
    """A job: its contract, its runs, and why it waits or was stopped."""

    job: str
    user: str | None
    account: str | None
    path: str | None
    gpus: int | None
    state: str | None = Field(description="State now, or that of its last run")
    contract: str | None
    priority: str | None
    notice: str | None = Field(description="Signal it wants before it is stopped")
    now: QueueJob | None = Field(description="Its line of the queue, while it is there")
    paragraphs: list[list[str]] = Field(description="As `slurm-fairshare explain` says it")
    runs: list[RunView] = Field(description="Oldest first")
    basis: BasisView | None


class LevelView(_Model):
    """A level of the pyramid; GPU-hours."""

    name: str
    value: float | None
    part: float | None
    whole: float | None
    about: str


class CapacityView(_Model):
    """GPUs of one type by what they can be used for now."""

    kind: str
    installed: int
    in_service: int
    allocated: int | None
    free: int | None
    drained: int
    down: int


class OccupancyLine(_Model):
    """GPUs that one team held, on average in each hour."""

    name: str
    path: str | None
    gpus: list[float]


class Occupancy(_Model):
    times: list[Moment]
    in_service: list[float]
    teams: list[OccupancyLine] = Field(description="Teams of the tree; then those in no budget; then unallocated")


class NodeOut(_Model):
    """A compute node that takes nothing new, or is not there."""

    name: str
    state: Literal["drained", "down"]
    reason: str
    gpus: int
    emptying: bool = Field(description="Whether its runs are asked to leave as they pass their minimum runtime")
    free_at: Moment | None = Field(description="When the last run will be gone, null where one is open-ended")
    stays: list[str] = Field(description="Who is still there and why, in words")


class NodesKept(_Model):
    """Compute nodes that are kept for one waiting job."""

    nodes: list[str]
    job: str
    account: str
    kind: Literal["guard", "plan"] = Field(description="Kept while others leave, or planned from a moment to come")
    start: Moment = Field(description="From when on they are the job's alone")
    why: str = Field(description="Why they are kept and until when, in words")


class ClusterView(_Model):
    """The cluster: capacity, the pyramid, who holds it, what is kept for a job, what is out of service."""

    basis: BasisView
    capacity: list[CapacityView]
    levels: list[LevelView]
    period: list[str]
    occupancy: Occupancy | None
    kept: list[NodesKept] | None = Field(description="Null where the viewer may not see it")
    out: list[NodeOut] | None = Field(description="Null where the viewer may not see it")
    kept_back: bool


class ChangesetLine(_Model):
    """One edit of the tree."""

    id: int
    author: str
    reason: str
    recorded: Moment
    effective: Moment
    state: str
    words: list[str]


class LogView(_Model):
    """Edits of the tree, newest first."""

    total: int
    page: int
    pages: int
    changesets: list[ChangesetLine]


class DifferenceView(_Model):
    """One node before and after an edit. Fractions; GPU-hours a day at present capacity."""

    path: str
    kind: str
    of_parent_before: float | None
    of_parent_after: float | None
    of_cluster_before: float | None
    of_cluster_after: float | None
    hours_before: float | None
    hours_after: float | None
    account: str | None
    words: str


class ChangesetView(_Model):
    """One edit and what it changed."""

    change: ChangesetLine
    capacity_gpus: float | None
    differences: list[DifferenceView]


class Health(_Model):
    """Whether the pages can be served, and how old what they show is."""

    status: Literal["ok", "stale", "empty"]
    computed: Moment | None
    age_seconds: float | None
