"""Templates: models in, HTML out. Every value is escaped."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from slurm_fairshare.config import Config
from slurm_fairshare.web import charts, drawing
from slurm_fairshare.web.static_files import StaticFiles


class Pages:
    """Draws pages. `base` is the path under which a proxy shows them."""

    def __init__(self, config: Config, files: StaticFiles) -> None:
        self._environment = Environment(
            loader=PackageLoader("slurm_fairshare.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        base = config.web.root_path
        self._environment.filters |= {
            "hours": drawing.hours,
            "part": drawing.part,
            "span": drawing.length,
            "stamp": drawing.stamp,
            "told": drawing.told,
        }
        self._environment.globals |= {
            "base": base,
            "cluster": config.cluster,
            "file": lambda name: base + files.address(name),
            "sparkline": drawing.sparkline,
            "meter": drawing.meter,
            "share_bar": drawing.share_bar,
            "until": drawing.until,
            "usage_chart": charts.usage_chart,
            "days_chart": charts.days_chart,
            "occupancy_chart": charts.occupancy_chart,
            "refresh": int(config.daemon.interval.total_seconds()),
        }

    def page(self, template: str, now: datetime, **values: Any) -> str:
        return self._environment.get_template(template).render(now=now, **values)
