"""The report: one HTML file with everything in it, pictures as SVG drawn here, nothing loaded from anywhere."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Mapping, Sequence

from slurm_fairshare.core.tree import account_key
from slurm_fairshare.sim.engine import Ended, Result
from slurm_fairshare.sim.gantt import Bar, bars
from slurm_fairshare.sim.ledger import HOUR, Meter
from slurm_fairshare.sim.score import Score
from slurm_fairshare.sim.table import comparison
from slurm_fairshare.sim.tree import tree_of
from slurm_fairshare.units import duration

COLOURS = (
    "#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0",
    "#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#e6ab02",
)  # fmt: skip

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;color:#1c2733;max-width:1180px;margin:2rem auto;padding:0 1.2rem;background:#fff}
h1{font-size:1.6rem;margin:0 0 .3rem}h2{font-size:1.15rem;margin:2.2rem 0 .4rem}p.note{color:#5a6775;margin:.2rem 0 .8rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:.28rem .6rem;text-align:right;border-bottom:1px solid #e4e8ec}th:first-child,td:first-child{text-align:left}
thead th{border-bottom:2px solid #1c2733}.multiples{display:grid;grid-template-columns:repeat(auto-fill,minmax(270px,1fr));gap:.8rem}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(480px,1fr));gap:1rem}figure{margin:0}
figcaption{font-size:.86rem;color:#36424e;margin-bottom:.15rem}.legend span{display:inline-block;margin-right:.9rem;font-size:.86rem}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px;vertical-align:-1px}svg{width:100%;height:auto;display:block}
svg text{font:11px system-ui,sans-serif;fill:#5a6775}
"""


def page(results: Sequence[tuple[Result, Score]], hours: int = 48, nodes: int = 16) -> str:
    """The report on one workload under several policies. The Gantt shows `hours` and `nodes` of the first and the last."""
    first = results[0][0]
    teams = [account_key(leaf.account or "") for leaf in tree_of(first.workload.shares).leaves]
    colours = {team: COLOURS[i % len(COLOURS)] for i, team in enumerate(teams)}
    name = html.escape(first.workload.name or "simulation")
    measured = duration(results[0][1].end - results[0][1].start)
    return "\n".join(
        [
            "<!doctype html><html lang=en><head><meta charset=utf-8>",
            f"<title>{name}: policies side by side</title><style>{STYLE}</style></head><body>",
            f"<h1>{name}</h1><p class=note>{first.machine.gpus:,} GPUs on {len(first.machine.nodes)} nodes, "
            f"{measured} measured, policies: {html.escape(', '.join(one.policy for _, one in results))}</p>",
            "<h2>Figures</h2>", _table(comparison([one for _, one in results])),
            "<h2>Usage against entitlement</h2><p class=note>GPUs charged, the mean of each day; dashed: the entitlement. "
            "A line per policy.</p>", _policy_legend(results), _usage(results),
            "<h2>Waits</h2><p class=note>The part of a class's jobs that had started after so long; further left is better."
            "</p>", _policy_legend(results), _waits(results),
            "<h2>The GPUs</h2><p class=note>A row per GPU, a bar per run, coloured by team; hatched while it may be stopped; "
            "a red edge where it was.</p>", _team_legend(colours), _gantts([results[0], results[-1]][: len(results)], colours, hours, nodes),
            "</body></html>",
        ]
    )  # fmt: skip


def _table(rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{html.escape(cell)}" for cell in rows[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in row) for row in rows[1:])
    return f"<table><thead><tr>{head}</thead><tbody>{body}</tbody></table>"


def _policy_legend(results: Sequence[tuple[Result, Score]]) -> str:
    names = [
        f"<span><i style='background:{COLOURS[i]}'></i>{html.escape(s.policy)}</span>"
        for i, (_, s) in enumerate(results)
    ]
    return f"<p class=legend>{''.join(names)}</p>"


def _team_legend(colours: Mapping[str, str]) -> str:
    names = [f"<span><i style='background:{colour}'></i>{html.escape(team)}</span>" for team, colour in colours.items()]
    return f"<p class=legend>{''.join(names)}<span><i style='background:#c9ced4'></i>unallocated</span></p>"


# --- usage ------------------------------------------------------------------------------------------


def _usage(results: Sequence[tuple[Result, Score]]) -> str:
    first, measured = results[0]
    pictures = []
    for leaf in tree_of(first.workload.shares).leaves:
        key = account_key(leaf.account or "")
        lines = [_daily(result, key, measured.start, measured.end) for result, _ in results]
        pictures.append(_line_chart(leaf.path, lines, leaf.effective * first.machine.gpus))
    return f"<div class=multiples>{''.join(pictures)}</div>"


def _daily(result: Result, account: str, start: int, end: int) -> list[float]:
    meter = next((m for name, m in result.ledger.charged.items() if account_key(name) == account), Meter())
    width = max(HOUR, min(24 * HOUR, (end - start) // 20 // HOUR * HOUR))
    edges = [*range(start, end, width), end]
    return [meter.between(left, right) / (right - left) for left, right in itertools.pairwise(edges) if right > left]


def _line_chart(title: str, lines: Sequence[Sequence[float]], level: float) -> str:
    width, height, left, bottom = 270, 110, 34, 14
    top = max([level * 1.3, *(value for line in lines for value in line), 1.0])

    def point(i: int, value: float, count: int) -> str:
        x = left + (width - left - 4) * (i / max(1, count - 1))
        return f"{x:.1f},{height - bottom - (height - bottom - 6) * value / top:.1f}"

    paths = "".join(
        f"<polyline fill=none stroke='{COLOURS[k]}' stroke-width=1.6 points='"
        + " ".join(point(i, value, len(line)) for i, value in enumerate(line))
        + "'/>"
        for k, line in enumerate(lines)
    )
    y = height - bottom - (height - bottom - 6) * level / top
    return (
        f"<figure><figcaption>{html.escape(title)}</figcaption><svg viewBox='0 0 {width} {height}' role=img>"
        f"<line x1={left} x2={width} y1={height - bottom} y2={height - bottom} stroke='#c9ced4'/>"
        f"<line x1={left} x2={width} y1={y:.1f} y2={y:.1f} stroke='#1c2733' stroke-dasharray='4 3'/>"
        f"<text x={left - 4} y={y + 4:.1f} text-anchor=end>{level:.0f}</text>{paths}</svg></figure>"
    )


# --- waits ------------------------------------------------------------------------------------------


def _waits(results: Sequence[tuple[Result, Score]]) -> str:
    names = [name for name in results[0][1].waits if name != "all"] or ["all"]
    return f"<div class=multiples>{''.join(_wait_chart(name, results) for name in names)}</div>"


def _wait_chart(name: str, results: Sequence[tuple[Result, Score]]) -> str:
    """Cumulative, on a logarithmic axis from one second to thirty days."""
    width, height, left, bottom = 270, 130, 36, 26
    longest = math.log10(30 * 86_400)

    def x(seconds: float) -> float:
        return left + (width - left - 6) * math.log10(max(1.0, seconds)) / longest

    marks = "".join(
        f"<line x1={x(at):.1f} x2={x(at):.1f} y1=6 y2={height - bottom} stroke='#eef1f4'/>"
        f"<text x={x(at):.1f} y={height - bottom + 13} text-anchor=middle>{label}</text>"
        for at, label in ((1, "1s"), (60, "1m"), (3600, "1h"), (86_400, "1d"), (864_000, "10d"))
    )
    lines = "".join(_cumulative(name, result, one, k, x, height - bottom) for k, (result, one) in enumerate(results))
    return (
        f"<figure><figcaption>{html.escape(name)}</figcaption><svg viewBox='0 0 {width} {height}' role=img>{marks}"
        f"<text x={left - 4} y=12 text-anchor=end>100%</text><text x={left - 4} y={height - bottom} text-anchor=end>0</text>"
        f"{lines}</svg></figure>"
    )


def _cumulative(name: str, result: Result, one: Score, k: int, x: object, floor: int) -> str:
    assert callable(x)  # noqa: S101
    chosen = [s for s in result.workload.jobs if one.start <= s.submit < one.end and _in_class(s.klass, s.gpus, name)]
    values = sorted(
        (at if 0 <= at <= one.end else one.end) - spec.submit
        for spec in chosen
        for at in (result.first_start[spec.number],)
    )
    if not values:
        return ""
    steps = [round(i * (len(values) - 1) / 60) for i in range(61)]
    points = " ".join(f"{x(values[i]):.1f},{floor - (floor - 6) * (i + 1) / len(values):.1f}" for i in steps)
    return f"<polyline fill=none stroke='{COLOURS[k]}' stroke-width=1.6 points='{points}'/>"


def _in_class(klass: str, gpus: int, name: str) -> bool:
    return name == "all" or klass == name or (name == "8 GPUs and more" and gpus >= 8)


# --- the Gantt --------------------------------------------------------------------------------------


def _gantts(results: Sequence[tuple[Result, Score]], colours: Mapping[str, str], hours: int, nodes: int) -> str:
    pictures = []
    for k, (result, one) in enumerate(results):
        start = one.start + max(0, (one.end - one.start - hours * HOUR) // 2)
        end = min(one.end, start + hours * HOUR)
        chosen = list(range(min(nodes, len(result.machine.nodes))))
        pictures.append(
            f"<figure><figcaption>{html.escape(one.policy)}: {hours} hours from {_day(start)} on {len(chosen)} nodes"
            f"</figcaption>{_gantt(result, bars(result, start, end, chosen), start, end, chosen, colours, k)}</figure>"
        )
    return f"<div class=pair>{''.join(pictures)}</div>"


def _day(at: int) -> str:
    return f"day {at // 86_400 + 1}, {at % 86_400 // 3600:02d}:00"


def _gantt(
    result: Result, shown: Sequence[Bar], start: int, end: int, nodes: Sequence[int], colours: Mapping[str, str], k: int
) -> str:
    row, gap, left, width = 4.0, 3.0, 44, 560
    offsets, height = {}, 4.0
    for node in nodes:
        offsets[node] = height
        height += result.machine.nodes[node].gpus * row + gap
    scale = (width - left) / max(1, end - start)
    drawn = []
    for bar in shown:
        spec = result.workload.jobs[bar.job]
        colour = colours.get(account_key(spec.account), "#9498a0") if result.charged[bar.job] else "#c9ced4"
        x0, x1 = (left + scale * (min(max(at, start), end) - start) for at in (bar.start, bar.end))
        y, tall = offsets[bar.node] + bar.first * row, bar.count * row - 0.5
        drawn.append(f"<rect x={x0:.1f} y={y:.1f} width={max(0.4, x1 - x0):.1f} height={tall:.1f} fill='{colour}'/>")
        soft = left + scale * (min(max(bar.bare, start), end) - start)
        if soft < x1:
            drawn.append(f"<rect x={soft:.1f} y={y:.1f} width={x1 - soft:.1f} height={tall:.1f} fill='url(#h{k})'/>")
        if bar.ended in {Ended.PREEMPTED, Ended.EVICTED, Ended.NODE_FAILED} and start < bar.end <= end:
            drawn.append(f"<rect x={x1 - 1:.1f} y={y:.1f} width=1.4 height={tall:.1f} fill='#d62020'/>")
    names = "".join(
        f"<text x={left - 4} y={offsets[node] + 14:.1f} text-anchor=end>{html.escape(result.machine.nodes[node].name)}</text>"
        for node in nodes
    )
    hatch = (
        f"<defs><pattern id=h{k} width=5 height=5 patternUnits=userSpaceOnUse patternTransform='rotate(45)'>"
        "<rect width=2 height=5 fill='#fff' fill-opacity=.55 /></pattern></defs>"
    )
    return f"<svg viewBox='0 0 {width} {height:.0f}' role=img>{hatch}{names}{''.join(drawn)}</svg>"
