"""A site for tests of the rebalancer: the real product and a real Slurm, with a standing of the teams that is said.

Waiting until teams have used up their shares would take hours. Here the newest tick says how they stand, and one
pass at a time is run by hand, so that a test knows when somebody is decided on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from slurm_fairshare.core.decisions import Outcome, Recorded
from slurm_fairshare.core.fairshare import Ranking, Standing, ranked
from slurm_fairshare.core.records import TickReport
from slurm_fairshare.core.tree import tree_at
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.daemon.rebalancing import PassReport
from tests.cluster.cluster import Cluster, JobId
from tests.cluster.product import Product

WHOLE_NODE = ("-N1", "--gpus-per-node=8")
TWO_NODES = ("-N2", "--gpus-per-node=8")
USERS = {"vision": "alice", "language": "carol", "robotics": "dan"}


@dataclass
class Site:
    """The teams are vision, language and robotics. `standing` says how far each is along its entitlement."""

    product: Product

    @property
    def cluster(self) -> Cluster:
        return self.product.cluster

    @classmethod
    @contextmanager
    def on(cls, cluster: Cluster, dsn: str, **settings: object) -> Iterator[Site]:
        cluster.reset()
        rebalance = {"interval": "1s", "settle": "30s", "notice": "3s"} | dict(settings.pop("rebalance", {}))  # type: ignore[call-overload]
        product = Product.on(cluster, dsn, rebalance=rebalance, **settings)
        product.fund()
        product.tick()
        try:
            yield cls(product)
        finally:
            product.store.close()

    def empty(self) -> None:
        """No jobs left, all nodes idle, the teams even."""
        self.cluster.cancel_all_jobs()
        self.cluster._resume_nodes()
        idle = lambda states: set(states.values()) == {"idle"}  # noqa: E731
        self.cluster.wait(self.cluster.node_states, 45, "idle nodes", until=idle)
        self.standing()

    def standing(self, **ratios: float) -> None:
        """Record a tick that ranks the teams by these ratios of usage to entitlement; 1.0 where none is given."""
        store, now = self.product.store, utc_now()
        tree = tree_at(store.changesets(), now)
        standings = {
            path: Standing(1e6 * node.effective, 1e6 * node.effective * ratios.get(node.name, 1.0), node.effective)
            for path, node in tree.nodes.items()
        }
        ranking = Ranking(tree, standings, ranked(tree, standings))
        with store.lead():
            store.record_tick(TickReport(now, now, ranking, (), pushed=False, window=Window(now, now)))

    def submit(self, team: str, minimum: str | None, *more: str, user: str = "", script: str = "sleep 900") -> JobId:
        """A job under contract, resumable unless it says otherwise. `minimum` may be followed by more words."""
        words = "" if minimum is None else f"min_runtime={minimum}"
        if words and "resumable=" not in words:
            words += " resumable=yes"
        comment = ("--comment", words) if words else ()
        size = () if any(word.startswith(("-N", "--gpus")) for word in more) else WHOLE_NODE
        return self.cluster.sbatch(user or USERS[team], *size, *comment, *more, script=script, account=team)

    def running(self, *jobs: JobId, seconds: float = 0) -> None:
        """Wait until the jobs run, and have run for so long."""
        for job in jobs:
            self.cluster.wait_state(job, "RUNNING", timeout=45)
        begun = max((self.started(job) for job in jobs), default=utc_now())
        self.until(begun.timestamp() + seconds)

    @staticmethod
    def until(moment: float) -> None:
        time.sleep(max(0.0, moment - time.time()))

    def started(self, job: JobId) -> datetime:
        found = self.product.slurm.job(job)
        assert found is not None
        assert found.start is not None
        return found.start

    def waits(self, *jobs: JobId) -> None:
        """Wait until Slurm has looked at the jobs and found no room for them."""
        reasons = {"Resources", "Priority"}
        for job in jobs:
            what = f"job {int(job)} to wait for room"
            self.cluster.wait(lambda job=job: self.cluster.job(job), 30, what, lambda seen: seen["Reason"] in reasons)

    def look(self) -> PassReport:
        return self.product.rebalance()

    def stopped(self, report: PassReport) -> set[int]:
        """The jobs this pass has stopped, one way or the other."""
        return {one.decision.victim.job_id for one in report.recorded if one.outcome in STOPPED}

    def look_until(self, outcome: Outcome, job: JobId, timeout: float = 30) -> Recorded:
        """Pass after pass, until what became of this job is as said."""

        def newest() -> Recorded | None:
            self.look()
            about = self.product.store.decisions_about(int(job))
            return next((one for one in about if one.outcome is outcome), None)

        found = self.cluster.wait(newest, timeout, f"job {int(job)} to be {outcome}")
        assert found is not None
        return found

    def why(self, report: PassReport, job: JobId) -> str:
        """What a pass says of a waiting job for which nobody was stopped."""
        return next((one.words for one in report.declined if one.job_id == int(job)), "")


STOPPED = frozenset({Outcome.REQUEUED, Outcome.ENDED})

Make = Callable[..., Site]
