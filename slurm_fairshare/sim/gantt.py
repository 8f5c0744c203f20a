"""Which GPU each run stood on: the runs of a result laid out on the GPUs of their nodes."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

from slurm_fairshare.sim.engine import Ended, Result


@dataclass(frozen=True, slots=True)
class Bar:
    """One run on neighbouring GPUs of one node, half-open in time. `bare` is when its protection ended."""

    node: int
    first: int
    count: int
    start: int
    end: int
    bare: int
    job: int
    ended: Ended


def bars(result: Result, start: int, end: int, nodes: Sequence[int]) -> list[Bar]:
    """The bars that touch `[start, end)` on these nodes.

    A node's runs never hold more GPUs than it has, so giving each run the lowest free ones always works out.
    """
    wanted = frozenset(nodes)
    runs, jobs = result.runs, result.workload.jobs
    free = {node: list(range(result.machine.nodes[node].gpus)) for node in nodes}
    leaving: list[tuple[int, int, int, list[int]]] = []
    found: list[Bar] = []
    for run in sorted(range(len(runs)), key=lambda run: (runs.start[run], run)):
        began, ended = runs.start[run], runs.end[run]
        if began >= end:
            break
        for node, gpus in runs.place[run]:
            if node not in wanted or not gpus:
                continue
            while leaving and leaving[0][0] <= began:
                _, _, where, slots = heapq.heappop(leaving)
                free[where].extend(slots)
                free[where].sort()
            if len(free[node]) < gpus:
                raise AssertionError(f"run {run} on node {node} would share a GPU")
            slots, free[node] = free[node][:gpus], free[node][gpus:]
            heapq.heappush(leaving, (ended, run, node, slots))
            if ended > start:
                number = runs.job[run]
                bare = began + jobs[number].min_runtime if result.charged[number] else began
                found.extend(
                    Bar(node, first, count, began, ended, bare, number, Ended(runs.ended[run]))
                    for first, count in _neighbours(slots)
                )
    return found


def _neighbours(slots: Sequence[int]) -> list[tuple[int, int]]:
    groups: list[tuple[int, int]] = []
    for slot in slots:
        if groups and groups[-1][0] + groups[-1][1] == slot:
            groups[-1] = (groups[-1][0], groups[-1][1] + 1)
        else:
            groups.append((slot, 1))
    return groups
