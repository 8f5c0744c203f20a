"""The policies that are laid side by side."""

from __future__ import annotations

from collections.abc import Hashable

from slurm_fairshare.core.fairshare import Standing, ranked
from slurm_fairshare.core.tree import account_key, ancestors
from slurm_fairshare.sim.engine import Engine, Job, Policy
from slurm_fairshare.sim.tree import tree_of


class Fifo(Policy):
    """First come, first served; nobody passes a blocked job."""

    name = "fifo"


class FirstFit(Policy):
    """Whoever fits starts, in the order of arrival. Large jobs may starve."""

    name = "first-fit"
    backfill = True


class Easy(Policy):
    """First come, first served; jobs pass the blocked head if they do not delay it (Lifka 1995)."""

    name = "easy"
    backfill = True
    reservations = 1


class StrictPriority(Policy):
    """The old world: what people declare is what counts, and protection is a number of GPUs per team.

    Debug jobs first, then the declared in-team priority, each first come first served. A team's protected jobs
    hold at most its entitlement at once; unprotected work is preempted by protected work at any time.
    """

    name = "strict-priority"
    backfill = True
    reservations = 1
    native = True

    def __init__(self, debug_first: int = 900, *, limits: bool = True) -> None:
        self.debug_first = debug_first
        self.limits = limits

    def begin(self, engine: Engine) -> None:
        super().begin(engine)
        gpus = engine.machine.gpus
        leaves = tree_of(engine.workload.shares).leaves
        self.most = {account_key(leaf.account or ""): round(leaf.effective * gpus) for leaf in leaves}

    def admit(self, job: Job) -> None:
        spec = job.spec
        job.charged = spec.min_runtime > 0
        job.loose = not job.charged
        job.group = 4 if 0 < spec.min_runtime <= self.debug_first else spec.priority if job.charged else -1
        if job.charged and self.limits:
            job.limited_by = account_key(spec.account)

    def priority(self, group: Hashable) -> float:
        return float(group)  # type: ignore[arg-type]

    def may_start(self, job: Job) -> bool:
        """One job may always run: a limit smaller than the job would shut it out for ever."""
        held = self.engine.limited.get(job.limited_by, 0)
        return held == 0 or held + job.spec.gpus <= self.most.get(str(job.limited_by), 0)


class SlurmFairTree(Policy):
    """Slurm's own fair_tree: decayed usage, accounts by their shares, users of an account alike; then age."""

    name = "slurm-fairtree"
    backfill = True
    reservations = 1
    recalculates = True

    def __init__(self, half_life: int = 7 * 86_400, *, preempts: bool = False) -> None:
        self.half_life = half_life
        self.native = preempts
        if preempts:
            self.name = "slurm-fairtree-preempt"

    def begin(self, engine: Engine) -> None:
        super().begin(engine)
        self.tree = tree_of(engine.workload.shares)
        self.used: dict[tuple[str, str], float] = {}
        self.rate: dict[tuple[str, str], int] = {}
        self.since = 0
        self.place: dict[tuple[str, str], float] = {}

    def admit(self, job: Job) -> None:
        spec = job.spec
        job.charged = spec.min_runtime > 0
        job.loose = not job.charged
        job.group = (job.charged, account_key(spec.account), spec.user)

    def priority(self, group: Hashable) -> float:
        assert isinstance(group, tuple)  # noqa: S101
        charged, account, user = group
        return (1e6 if charged else 0.0) + self.place.get((account, user), self.place.get((account, ""), 0.0))

    def started(self, job: Job, now: int) -> None:
        self._hold(job, job.spec.gpus, now)

    def ended(self, job: Job, now: int) -> None:
        self._hold(job, -job.spec.gpus, now)

    def _hold(self, job: Job, gpus: int, now: int) -> None:
        """Usage is brought up to date in between, as Slurm charges a job that ends between two periods."""
        if not job.charged:
            return
        key = (account_key(job.spec.account), job.spec.user)
        left = now - self.since
        self.used[key] = self.used.get(key, 0.0) - gpus * left
        self.rate[key] = self.rate.get(key, 0) + gpus

    def recalculate(self, now: int) -> None:
        """decay_factor of the multifactor plugin, then fair_tree: LevelFS = shares / usage, best first."""
        gone = now - self.since
        decay = 0.5 ** (gone / self.half_life)
        for key in self.used:
            self.used[key] = (self.used[key] + self.rate[key] * gone) * decay
        self.since = now
        by_account: dict[str, float] = {}
        for (account, _), amount in self.used.items():
            by_account[account] = by_account.get(account, 0.0) + amount
        order = ranked(self.tree, self._standings(by_account))
        users: dict[str, list[tuple[float, str]]] = {}
        for (account, user), amount in self.used.items():
            users.setdefault(account, []).append((amount, user))
        place: dict[tuple[str, str], float] = {}
        for position, leaf in enumerate(order):
            account = account_key(leaf.account)
            ahead = float(10 * (len(order) - position))
            # A user without usage comes before those with some; between accounts nothing changes.
            place[account, ""] = ahead + 9
            known = sorted(users.get(account, ()))
            for rank, (_, user) in enumerate(known):
                place[account, user] = ahead + 8 - 8 * rank / len(known)
        self.place = place

    def _standings(self, by_account: dict[str, float]) -> dict[str, Standing]:
        used: dict[str, float] = {}
        for leaf in self.tree.leaves:
            for path in ancestors(leaf.path):
                used[path] = used.get(path, 0.0) + by_account.get(account_key(leaf.account or ""), 0.0)
        return {path: Standing(node.effective, used[path], node.effective) for path, node in self.tree.nodes.items()}
