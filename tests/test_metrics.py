"""The metrics: what is served is what is documented; promtool accepts it; alerts and dashboard use what exists."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path

import pytest
import yaml
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from slurm_fairshare import metrics
from slurm_fairshare.daemon.loop import Daemon
from slurm_fairshare.errors import ConfigError, StoreUnreachable
from slurm_fairshare.metrics import METRICS, PREFIX, FairshareCollector, exposition, served
from tests.daemon.world import World, terms, world

ROOT = Path(__file__).parents[1]
ALERTS, DASHBOARD = ROOT / "monitoring" / "alerts.yml", ROOT / "monitoring" / "grafana.json"


@pytest.fixture
def it() -> Iterator[World]:
    """Two hours of a small cluster under load, with a failure, a row that cannot be read and a run that yielded."""
    made = world()
    daemon = Daemon(made.slurm, made.store, made.config, lambda: made.slurm.now)
    daemon.tick()
    made.run("robotics", 8, terms(60))
    made.run("robotics", 8, terms(8 * 3600))
    made.wait("vision", 8, terms(60))
    for _ in range(12):
        made.slurm.advance(600)
        daemon.tick()
        daemon.rebalance()
        made.slurm.schedule()
    made.store.record_failure(made.slurm.now - timedelta(hours=1), "plan", "no")
    made.slurm.advance(20)
    yield made
    daemon.close()


def families(it: World) -> dict[str, Metric]:
    text = exposition(it.store, it.config, lambda: it.slurm.now)
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(it: World, name: str, **labels: str) -> float:
    found = [
        sample.value
        for family in families(it).values()
        for sample in family.samples
        if sample.name == PREFIX + name and sample.labels == labels
    ]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


def test_what_is_served_is_what_is_documented(it: World) -> None:
    documented = {spec.full: spec for spec in METRICS}
    seen = families(it)
    names = {name + "_total" if family.type == "counter" else name for name, family in seen.items()}
    assert names == documented.keys()
    for name, family in seen.items():
        spec = documented[name + "_total" if family.type == "counter" else name]
        assert (family.type, family.documentation) == (spec.kind, spec.about)
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(spec.labels), sample


def test_a_unit_is_in_the_name() -> None:
    for spec in METRICS:
        if spec.unit:
            word = spec.unit.lower().replace("-", "_")
            assert spec.name.removesuffix("_total").endswith(word), spec.name
        assert (spec.kind == "counter") == spec.name.endswith("_total")


def test_the_numbers_are_those_of_the_last_tick(it: World) -> None:
    last = it.store.last_ranking()
    assert last is not None
    leaf = last[1].leaf("robotics")
    assert leaf is not None
    labels = {"account": "robotics", "path": "lab/robotics"}
    assert value(it, "usage_gpu_seconds", **labels) == leaf.standing.usage
    assert value(it, "usage_ratio", **labels) == pytest.approx(leaf.standing.ratio)
    assert value(it, "rank", **labels) == leaf.rank
    assert value(it, "share_ratio", **labels) == pytest.approx(0.2)
    assert value(it, "capacity_gpus", type="h100", state="in_service") == 16
    assert value(it, "owed_gpu_seconds", **labels) > 0
    assert value(it, "delivered_gpu_seconds", **labels) <= value(it, "owed_gpu_seconds", **labels)


def test_ages_failures_decisions_and_calls_are_told(it: World) -> None:
    assert value(it, "source_age_seconds", source="ranking") == 20
    assert value(it, "failures_total", step="plan") == 1
    assert value(it, "decisions_total", rule="under-served", outcome="requeued") >= 1
    assert value(it, "slurm_calls_total", tool="runs") >= 13
    assert value(it, "leader_present") == 1
    assert value(it, "pending_differences") == 0


def test_waits_are_counted_by_class_since_midnight(it: World) -> None:
    assert value(it, "wait_seconds_count", **{"class": "small"}) == 1  # eight hours' contract, started at once
    assert value(it, "wait_seconds_bucket", **{"class": "small", "le": "1.0"}) == 1
    assert value(it, "wait_seconds_count", **{"class": "large"}) == 0


def test_what_is_not_known_is_left_out_and_not_zero() -> None:
    it = world()
    seen = families(it)
    assert f"{PREFIX}usage_ratio" not in seen
    assert f"{PREFIX}tick_seconds" not in seen
    assert seen[f"{PREFIX}source_age_seconds"].samples == []
    assert value(it, "store_up") == 1


def test_a_store_that_does_not_answer_is_told_and_nothing_else(it: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise StoreUnreachable("gone")

    monkeypatch.setattr(it.store, "last_tick", gone)
    assert {name.removeprefix(PREFIX) for name in families(it)} == {"store_up", "build_info", "push_enabled"}
    assert value(it, "store_up") == 0


def test_scraping_often_costs_one_reading(it: World) -> None:
    seconds = [0.0]
    collector = FairshareCollector(it.store, it.config, lambda: it.slurm.now, lambda: seconds[0])
    asked = []
    real = it.store.runs
    it.store.runs = lambda *given, **more: asked.append(given) or real(*given, **more)  # type: ignore[method-assign, func-returns-value]
    before = it.slurm.calls.copy()
    for _ in range(50):
        list(collector.collect())
        seconds[0] += 1
    once = len(asked)
    for _ in range(200):
        list(collector.collect())
        seconds[0] += 1
    assert len(asked) == once, "once in five minutes, however often it is scraped"
    assert it.slurm.calls == before


def test_the_daemon_serves_them(it: World) -> None:
    config = it.config.model_copy(update={"metrics": it.config.metrics.model_copy(update={"listen": "127.0.0.1:0"})})
    with served(it.store, config, lambda: it.slurm.now) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert f"{PREFIX}store_up 1.0" in text
        taken = config.model_copy(update={"metrics": config.metrics.model_copy(update={"listen": f"127.0.0.1:{port}"})})
        with pytest.raises(ConfigError, match="cannot be listened on"), served(it.store, taken, lambda: it.slurm.now):
            pass
    with served(it.store, it.config, lambda: it.slurm.now) as port:
        assert port is None


def test_an_address_that_is_none_is_refused() -> None:
    for wrong in ("9341", "localhost:http", "a:99999"):
        with pytest.raises(ConfigError, match=r"host:port"):
            metrics.address(wrong)


def test_ratios_without_entitlement_are_infinite() -> None:
    it = world()
    Daemon(it.slurm, it.store, it.config, lambda: it.slurm.now).tick()
    found = value(it, "usage_ratio", account="robotics", path="lab/robotics")
    assert math.isinf(found) or found == 0 or math.isnan(found)


# --- promtool, alerts, dashboard ------------------------------------------------------------------


@cache
def promtool() -> str:
    """Prometheus' own checker; installed where that is possible, else the test fails and says what to do."""
    found = shutil.which("promtool")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        # Only the program is wanted: in runlevel 1 the package's server is not started.
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        for words in (["update", "-q"], ["install", "-y", "-q", "--no-install-recommends", "prometheus"]):
            subprocess.run(["apt-get", *words], env=environment, capture_output=True, check=False)
        found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is missing: install Debian's package prometheus, or put promtool on PATH", pytrace=False)
    return found


def check(*words: str, stdin: str | None = None) -> str:
    done = subprocess.run([promtool(), "check", *words], input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_promtool_finds_nothing_to_say_of_the_metrics(it: World) -> None:
    assert check("metrics", stdin=exposition(it.store, it.config, lambda: it.slurm.now)) == ""


def test_promtool_accepts_the_alert_rules() -> None:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    assert f"SUCCESS: {len(rules)} rules found" in check("rules", str(ALERTS))


def test_every_alert_says_what_to_do() -> None:
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def queries() -> list[str]:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [rule["expr"] for rule in rules] + [target["expr"] for panel in panels for target in panel["targets"]]


def test_alerts_and_dashboard_ask_only_for_metrics_that_exist() -> None:
    exist = {spec.full for spec in METRICS} | {f"{PREFIX}wait_seconds_{end}" for end in ("bucket", "sum", "count")}
    asked = {name for query in queries() for name in re.findall(rf"{PREFIX}\w+", query)}
    assert asked <= exist, asked - exist


def test_labels_in_queries_exist() -> None:
    labels = {label for spec in METRICS for label in spec.labels} | {"le"}
    for query in queries():
        asked = set(re.findall(r"(\w+)=~?\"", query))
        for group in re.findall(r"by \(([^)]*)\)", query):
            asked |= {word.strip() for word in group.split(",")}
        assert asked <= labels, query


def test_every_metric_of_a_leaf_is_on_the_dashboard() -> None:
    shown = " ".join(queries())
    assert [spec.full for spec in METRICS if spec.labels == metrics.LEAF and spec.full not in shown] == []


def test_panels_do_not_lie_over_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
