"""Scores as rows of text: a column per policy, figures over seeds as mean and range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_fairshare.sim.score import Score
from slurm_fairshare.sim.study import Figure, figures
from slurm_fairshare.units import duration, percent

LINES = (
    ("delivered of owed", "delivered", percent),
    ("worst team", "worst_team", percent),
    ("teams at 95% or more", "teams_at_95", lambda value: f"{value:.1f}"),
    ("delivered hour by hour", "hourly", percent),
    ("occupancy", "occupancy", percent),
    ("unallocated", "unallocated", percent),
    ("lost work", "lost", percent),
    ("of it unallocated", "lost_unallocated", percent),
    ("evicted a day", "evicted_per_day", lambda value: f"{value:.0f}"),
    ("preempted by Slurm a day", "preempted_per_day", lambda value: f"{value:.0f}"),
    ("largest job's GPUs free in pieces", "in_pieces", percent),
    ("mean lack of a week's owed", "drift", percent),
    ("converged after", "converged", lambda value: duration(value) if value >= 0 else "never"),
)


def comparison(columns: Sequence[Score | Sequence[Score]]) -> list[list[str]]:
    """A head and a row per figure. A column is one score, or the scores of several seeds."""
    groups = [[column] if isinstance(column, Score) else list(column) for column in columns]
    over = [figures(group) for group in groups]
    rows = [["", *(group[0].policy for group in groups)]]
    rows += [[label, *(_say(one.get(name), show) for one in over)] for label, name, show in LINES]
    for klass in _classes(groups):
        for quantile in ("p50", "p90", "p99"):
            key = f"{klass.replace(' ', '_')}_{quantile}"
            rows.append([f"wait {klass} {quantile}", *(_say(one.get(key), duration) for one in over)])
    return rows


def _classes(groups: Sequence[Sequence[Score]]) -> list[str]:
    found: dict[str, None] = {}
    for group in groups:
        for one in group:
            found |= dict.fromkeys(one.waits)
    return list(found)


def _say(figure: Figure | None, show: object) -> str:
    assert callable(show)  # noqa: S101
    if figure is None:
        return "-"
    mean = str(show(figure.mean))
    low, high = str(show(figure.least)), str(show(figure.most))
    return mean if low == high else f"{mean} ({low} to {high})"


def as_json(columns: Mapping[str, Sequence[Score]]) -> dict[str, object]:
    """For programs: each policy's scores by seed, and the figures over them."""
    return {
        name: {
            "scores": [one.as_dict() for one in group],
            "figures": {key: [f.mean, f.least, f.most] for key, f in figures(group).items()},
        }
        for name, group in columns.items()
    }


def sweep_table(rows: Sequence[Mapping[str, object]], knobs: Sequence[str], most: int = 12) -> list[list[str]]:
    """The best settings first, with what each costs."""
    shown = ("delivered", "worst_team", "occupancy", "lost", "evicted_per_day")
    head = [*knobs, *shown, "debug_p90", "large_p90", "seeds"]
    body = [
        [*(str(row.get(knob)) for knob in knobs), *(_number(row.get(name)) for name in head[len(knobs) :])]
        for row in rows[:most]
    ]
    return [head, *body]


def _number(value: object) -> str:
    if not isinstance(value, (int, float)):
        return "-"
    return f"{value:.3f}" if abs(value) < 10 and value != int(value) else f"{value:.0f}"
