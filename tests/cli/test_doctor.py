"""`doctor` at the keyboard: what it prints, and what it ends with."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.doctor import open_to_all
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from slurm_fairshare.core.doctor import CHECKS, GROUPS
from slurm_fairshare.core.doctor.facts import Clocks, DatabaseFacts
from slurm_fairshare.core.doctor.health import BUGS
from slurm_fairshare.errors import StoreUnreachable
from slurm_fairshare.reports.doctor import page
from slurm_fairshare.store import condition
from slurm_fairshare.store.memory import MemoryStore
from tests.cli.conftest import START
from tests.slurm.fake import Tools, said
from tests.slurm.test_configuration import site as tools

HEALTHY_DATABASE = (DatabaseFacts("1", "1", frozenset({"1"}), False, "fairshare"), Clocks("Postgres", 0.0))


def run(monkeypatch: pytest.MonkeyPatch, fake: Tools, *words: str, **settings: object) -> Result:
    monkeypatch.setattr(condition, "condition", lambda _dsn: HEALTHY_DATABASE)
    config = Config(cluster="lab", **settings)  # type: ignore[arg-type]
    store = MemoryStore("lab", config.charge_rule, config.ladder)
    app = App(config, store, clock=lambda: START, runner=fake.runner())
    result = CliRunner().invoke(main, ["doctor", *words], obj=app, env={"COLUMNS": ""})
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def test_each_finding_says_what_why_and_what_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(monkeypatch, tools())
    assert result.exit_code == 2
    first, *_ = result.stdout.split("\n\n")
    assert first.startswith("error: ")
    assert "In slurm.conf:\n        PreemptType=preempt/qos\n" in result.stdout
    assert result.stdout.strip().endswith(f"{len(CHECKS)} checks made.")


def test_programs_get_rows_or_json(monkeypatch: pytest.MonkeyPatch) -> None:
    head, *rows = run(monkeypatch, tools(), "-P").stdout.splitlines()
    assert head == "Severity|Check|Subject|Wrong|Place|Write"
    assert all(row.count("|") == 5 for row in rows)
    told = json.loads(run(monkeypatch, tools(), "--json").stdout)
    assert told["worst"] == "error"
    assert set(told["made"]) == {check.name for check in CHECKS}
    assert {"severity", "check", "subject", "wrong", "why", "place", "write"} == set(told["findings"][0])
    assert run(monkeypatch, tools(), "-n", "-o", "check").stdout.splitlines()[0].strip() in told["made"]


def test_what_cannot_be_read_is_an_error_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    down = said("scontrol: error: Unable to contact slurm controller (connect failure)")
    result = run(monkeypatch, tools(scontrol=down))
    assert result.exit_code == 2
    assert "error: unread" in result.stdout
    assert "left out" in result.stdout


def test_a_dead_postgres_leaves_slurm_to_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(_dsn: str) -> None:
        raise StoreUnreachable("Postgres at db cannot be used: refused; check that it runs")

    monkeypatch.setattr(condition, "condition", dead)
    config = Config(cluster="lab")
    app = App(
        config, MemoryStore("lab", config.charge_rule, config.ladder), clock=lambda: START, runner=tools().runner()
    )
    told = json.loads(CliRunner().invoke(main, ["doctor", "--json"], obj=app).stdout)
    assert [one["subject"] for one in told["findings"] if one["check"] == "unread"] == ["database"]
    assert "schema" in told["left_out"]
    assert "preempt-type" in told["made"]


def test_the_exit_code_is_the_worst_severity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from slurm_fairshare.cli import doctor
    from tests.core.test_doctor import CASES, HEALTHY

    for name, code in ((None, 0), ("push-off", 0), ("calc-period", 1), ("job-requeue", 2)):
        case = next((case for case in CASES if case.check == name), None)
        facts = case.change(HEALTHY) if case else HEALTHY
        monkeypatch.setattr(doctor, "gather", lambda _app, facts=facts: facts)
        result = run(monkeypatch, tools())
        assert result.exit_code == code, (name, result.stdout)
        assert name is not None or result.stdout.startswith("Nothing is wrong; ")


def test_names_from_outside_cannot_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    evil = "lab\nother\n".replace("other", "o\x1b[2Jther")

    def sacctmgr(words: list[str]) -> str:
        from tests.slurm.test_configuration import sacctmgr as usual

        return evil.replace("lab\n", "") if "cluster" in words else usual(words)

    shown = run(monkeypatch, tools(sacctmgr=sacctmgr)).stdout
    assert "cluster-unregistered" in shown
    assert "\x1b" not in shown


def test_the_page_names_every_check_and_bug() -> None:
    text = page()
    assert all(f"| `{check.name}` |" in text for check in CHECKS)
    assert all(f"| `{bug.name}` |" in text for bug in BUGS)
    assert all(f"## {group.title}" in text for group in GROUPS)


@pytest.mark.parametrize(("mode", "found"), [(0o644, True), (0o640, False)])
def test_a_file_with_a_password_that_everybody_may_read_is_named(tmp_path: Path, mode: int, found: bool) -> None:
    place = tmp_path / "environment"
    place.touch()
    place.chmod(mode)
    assert open_to_all(place, tmp_path / "missing") == ((str(place),) if found else ())
