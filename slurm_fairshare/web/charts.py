"""What the charts of a page draw, as plain data: static/app.js turns it into ECharts' terms and the page's colours."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from slurm_fairshare.units import moment
from slurm_fairshare.web.models import DayView, Line, Occupancy

MOST_TEAMS = 9
"""So many teams have a colour of their own in the occupancy; the smaller ones are drawn together."""


def usage_chart(line: Line | None) -> str:
    """GPUs used, wanted and entitled to, hour by hour."""
    if line is None:
        return ""
    return _told(
        kind="lines",
        unit="GPUs",
        times=[moment(at) for at in line.times],
        series=[
            _series("Used", line.used, "used", area=True),
            _series("Entitled to", line.entitled, "due", step=True),
            _series("Wanted", line.wanted, "wanted"),
        ],
    )


def days_chart(days: Sequence[DayView]) -> str:
    """Owed and delivered, day by day."""
    return _told(
        kind="bars",
        unit="GPU-hours",
        labels=[f"{one.day.day} {one.day:%b}" for one in days],
        series=[
            _series("Owed", [one.owed for one in days], "owed"),
            _series("Delivered", [one.delivered for one in days], "used"),
        ],
    )


def occupancy_chart(found: Occupancy | None) -> str:
    """GPUs held, team upon team, below what was in service."""
    if found is None:
        return ""
    teams = [one for one in found.teams if one.path is not None]
    teams.sort(key=lambda one: -sum(one.gpus))
    others = [one for one in found.teams if one.path is None]
    series = [_series(one.name, one.gpus, "team", stack=True) for one in teams[:MOST_TEAMS]]
    if teams[MOST_TEAMS:]:
        rest = [sum(values) for values in zip(*(one.gpus for one in teams[MOST_TEAMS:]), strict=True)]
        series.append(_series("smaller teams", rest, "team", stack=True))
    series += [_series(one.name, one.gpus, "free", stack=True) for one in others]
    series.append(_series("in service", found.in_service, "due", step=True))
    return _told(kind="lines", unit="GPUs", times=[moment(at) for at in found.times], series=series)


def _series(name: str, values: Sequence[float], role: str, **more: bool) -> dict[str, Any]:
    return {"name": name, "role": role, "values": [round(value, 2) for value in values], **more}


def _told(**chart: Any) -> str:
    return json.dumps(chart, separators=(",", ":"), ensure_ascii=False)
