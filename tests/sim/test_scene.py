"""The scene the simulator moves along is the scene a picture of the same moment would give, decisions included."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_fairshare.core.cluster import Picture
from slurm_fairshare.core.scene import Scene
from slurm_fairshare.sim.budget import Budget
from tests.sim.build import random_jobs, run


class Checked(Budget):
    """Before each pass both scenes are laid beside each other."""

    compared = 0

    def rebalance(self, now: int) -> bool:
        self._keep_scene()
        at = self.moment(now)
        running = [self._known(job) for job in self.jobs.values() if not job.leaving]
        leaving = {(job.number, self.moment(job.start)) for job in self.jobs.values() if job.leaving}
        jobs = tuple(running) + tuple(self._known(job) for job in self.jobs.values() if job.leaving)
        nodes = dict(self.scene.nodes)
        for job in jobs:
            for name, part in job.by_node.items():
                nodes[name] = replace(nodes[name], allocated=nodes[name].allocated.plus(part))
        fresh = Scene.of(Picture("c", at, jobs, tuple(nodes.values())), self.knobs.ladder, leaving)
        fresh.advance(at)
        self.scene.advance(at)
        assert fresh.gpus == self.scene.gpus
        assert {k: set(v) for k, v in fresh.bare.items() if v} == {k: set(v) for k, v in self.scene.bare.items() if v}
        Checked.compared += 1
        return super().rebalance(now)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_scene_moved_along_equals_one_made_anew(seed: int) -> None:
    Checked.compared = 0
    result = run(random_jobs(seed, 120), Checked())
    assert Checked.compared > 20
    assert result.evicted + result.preempted > 0
