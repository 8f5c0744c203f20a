"""Small pictures drawn by the server as SVG, and the words of numbers: what templates call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from slurm_fairshare.units import duration
from slurm_fairshare.web.models import Line, NodeView

WIDTH, HEIGHT = 160.0, 36.0
FULL = 2.0
"""A bar is full at twice the entitlement."""


def sparkline(line: Line | None, about: str) -> Markup:
    """Usage as an area, entitlement as a dashed line, over the window."""
    if line is None or len(line.used) < 2:
        return Markup("")
    most = max(*line.used, *line.entitled, 1e-9) * 1.08
    used, due = _points(line.used, most), _points(line.entitled, most)
    return Markup(
        '<svg class="spark" viewBox="0 0 {w:g} {h:g}" preserveAspectRatio="none" role="img" aria-label="{about}">'
        '<polygon class="spark-area" points="0,{h:g} {used} {w:g},{h:g}"/>'
        '<polyline class="spark-used" points="{used}"/><polyline class="spark-due" points="{due}"/></svg>'
    ).format(w=WIDTH, h=HEIGHT, about=about, used=used, due=due)


def _points(values: Sequence[float], most: float) -> str:
    step = WIDTH / (len(values) - 1)
    return " ".join(
        f"{place * step:.1f},{HEIGHT - value / most * (HEIGHT - 2) - 1:.1f}" for place, value in enumerate(values)
    )


def meter(node: NodeView) -> Markup:
    """Usage as a bar, with a mark where the entitlement is."""
    ratio = FULL if node.ratio is None else min(node.ratio, FULL)
    return Markup(
        '<svg class="meter {mood}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="meter-back" width="100" height="10" rx="2"/><rect class="meter-bar" width="{width:.1f}" '
        'height="10" rx="2"/><rect class="meter-mark" x="49.4" width="1.2" height="10"/></svg>'
    ).format(mood=node.mood, width=ratio / FULL * 100)


def share_bar(fraction: float, kind: str = "") -> Markup:
    """A bar for a fraction of a whole."""
    return Markup(
        '<svg class="bar {kind}" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="meter-back" width="100" height="10" rx="2"/>'
        '<rect class="meter-bar" width="{width:.1f}" height="10" rx="2"/></svg>'
    ).format(kind=kind, width=max(0.0, min(1.0, fraction)) * 100)


def hours(value: float | None) -> str:
    """GPU-hours for people.

    >>> hours(12345.6), hours(12.34), hours(0.0), hours(None)
    ('12,346', '12.3', '0', '–')
    """
    if value is None:
        return "–"
    if abs(value) >= 100 or value == 0:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def part(value: float | None) -> str:
    """A fraction for people.

    >>> part(0.1234), part(1.0), part(None)
    ('12.3%', '100%', '–')
    """
    return "–" if value is None else f"{value * 100:.1f}".rstrip("0").rstrip(".") + "%"


def length(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


def stamp(at: datetime | None) -> Markup:
    """A moment as people read it, with the exact one beside it for machines."""
    return Markup("–") if at is None else _time(f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}", " UTC")


def _time(exact: str, zone: str) -> Markup:
    at = datetime.fromisoformat(exact)
    return Markup('<time datetime="{}">{} {:%b %H:%M}{}</time>').format(exact, at.day, at, zone)


_MARKED = re.compile(r"(?P<moment>\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d)?Z)|`(?P<code>[^`]+)`")


def told(sentence: str) -> Markup:
    """A sentence of a report for people: moments as they read them, what is to be typed as code.

    >>> print(told("<7> began at 2026-11-08T15:19Z; see `sacct -j 7`."))
    &lt;7&gt; began at <time datetime="2026-11-08T15:19Z">8 Nov 15:19 UTC</time>; see <code>sacct -j 7</code>.
    """
    found, end = Markup(""), 0
    zone = "" if "UTC" in sentence else " UTC"
    for match in _MARKED.finditer(sentence):
        found += escape(sentence[end : match.start()])
        if match["code"]:
            found += Markup("<code>{}</code>").format(match["code"])
        else:
            found += _time(match["moment"], zone)
        end = match.end()
    return found + escape(sentence[end:])


def until(at: datetime | None, now: datetime) -> Markup:
    """A moment to come, and how long that is."""
    if at is None:
        return Markup("–")
    return Markup("{at} ({left})").format(
        at=stamp(at), left=f"in {duration(max(timedelta(0), at - now).total_seconds())}"
    )
