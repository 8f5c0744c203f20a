"""The commands on a real Postgres, each by somebody who logs in as themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner, Result

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from slurm_fairshare.slurm.memory import MemorySlurm
from tests.roles import Place, made_place
from tests.store.build import CLUSTER

WHY = ("--reason", "the board of May")


@dataclass
class Office:
    place: Place

    def run(self, who: str, *words: str) -> Result:
        address = self.place.owner if who == "owner" else self.place.address(who)
        config = Config(cluster=CLUSTER, database_url=address)
        slurm = MemorySlurm(CLUSTER, config.ladder, config.charge_rule, datetime.now(UTC))
        slurm.add_node("n1")
        for account in ("nlp", "video", "faces", "robotics"):
            slurm.add_account(account, "alice")
        result = CliRunner().invoke(main, list(words), obj=App(config, slurm=slurm), env={"COLUMNS": ""})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def says(self, who: str, *words: str) -> str:
        result = self.run(who, *words)
        assert result.exit_code == 0, result.output
        return result.stdout

    def refuses(self, who: str, *words: str) -> str:
        result = self.run(who, *words)
        assert result.exit_code in (1, 2), result.output
        return result.stderr


@pytest.fixture(scope="module")
def office(postgres_server: str) -> Iterator[Office]:
    with made_place(postgres_server) as place:
        yield Office(place)


def test_a_manager_edits_below_their_node_and_signs_with_their_login(office: Office) -> None:
    anna = office.place.role("anna")
    shown = office.says("anna", "budget", "set", "lab/vision", "video=3", "faces=1", *WHY)
    assert f" by {anna}, in force from " in shown
    assert "50% -> 75%" in shown
    office.says("anna", "budget", "add", "lab/vision/hands", "--share", "1", *WHY)
    office.says("anna", "budget", "retire", "lab/vision/hands", *WHY)
    office.says("anna", "budget", "set", "lab/vision", "video=9", "faces=1", *WHY, "--from", "7d")
    last = office.run("anna", "budget", "log", "-nP", "-o", "ID").stdout.splitlines()[0]
    office.says("anna", "budget", "cancel", last, *WHY)
    assert anna in office.says("anna", "budget", "log", "lab/vision")


def test_a_manager_is_told_what_is_not_theirs(office: Office) -> None:
    for words in (
        ("set", "lab", "vision=99", "language=1"),
        ("set", "/", "lab=1", "mine=9:mine"),
        ("add", "lab/mine", "--share", "9"),
        ("retire", "lab/language"),
        ("move", "lab/vision/video", "lab"),
    ):
        told = office.refuses("anna", "budget", *words, *WHY)
        assert "do not manage the shares below" in told
        assert "you manage what is below lab/vision" in told
    assert "you manage nothing" in office.refuses("mona", "budget", "set", "lab/vision", "video=1", *WHY)
    assert "may not do that" in office.refuses("anna", "budget", "grant", "lab", office.place.role("anna"))
    assert "may not do that" in office.refuses("anna", "budget", "revoke", "lab/vision", office.place.role("anna"))


def test_readers_and_managers_read_every_report_on_budgets(office: Office) -> None:
    for who in ("rita", "anna", "dora"):
        for words in (
            ("show",),
            ("log",),
            ("diff", "1"),
            ("managers",),
            ("export",),
            ("preview", "set", "lab", "vision=1", "language=1"),
        ):
            office.says(who, "budget", *words)
        assert office.run(who, "budget", "check").exit_code in (0, 1)
    assert "do not manage" in office.refuses("rita", "budget", "set", "lab", "vision=1", *WHY)


def test_an_admin_edits_all_grants_and_revokes(office: Office) -> None:
    mona, otto = office.place.role("mona"), office.place.role("otto")
    same = ("vision=50", "language=30", "robotics=25")
    assert f" by {otto}" in office.says("otto", "budget", "set", "lab", *same, *WHY)
    told = office.says("otto", "budget", "grant", "lab/vision", mona, *WHY)
    assert f"{mona} manages what is below lab/vision, granted by {otto}" in told
    assert "cannot do so yet" not in told
    office.says("mona", "budget", "set", "lab/vision", "video=1", "faces=2", *WHY)
    office.says("otto", "budget", "revoke", "lab/vision", mona)
    assert "do not manage" in office.refuses("mona", "budget", "set", "lab/vision", "video=1", *WHY)


def test_a_grant_to_somebody_without_a_login_says_what_to_run(office: Office) -> None:
    told = office.says("otto", "budget", "grant", "lab/vision", "nobody.of.that.name")
    assert 'create role "nobody.of.that.name" login in role fairshare_manager' in told
    assert "manager-without-login" in office.run("otto", "budget", "check").stdout
    office.says("otto", "budget", "revoke", "lab/vision", "nobody.of.that.name")


def test_who_leaves_leaves_no_plan_unnamed(office: Office) -> None:
    mona = office.place.role("mona")
    office.says("otto", "budget", "grant", "lab/vision", mona)
    office.says("mona", "budget", "set", "lab/vision", "video=5", "faces=1", *WHY, "--from", "30d")
    told = office.says("otto", "budget", "revoke", "lab/vision", mona)
    assert "is planned from" in told
    number = told.split("budget cancel ")[1].split()[0]
    office.says("otto", "budget", "cancel", number, *WHY)


def test_the_daemons_login_ticks_and_rebalances(office: Office) -> None:
    office.says("dora", "tick")
    office.says("dora", "rebalance")
    office.says("dora", "tick")
    assert "may not do that" in office.refuses("rita", "tick")
    assert "do not manage" in office.refuses("dora", "budget", "set", "lab/vision", "video=1", *WHY)


def test_setting_up_says_what_was_made(office: Office) -> None:
    assert "Each has its rights." in office.says("owner", "database", "roles")
    assert "create role fairshare_manager nologin;" in office.says("owner", "database", "roles", "--sql")
    office.says("owner", "database", "roles", "--readers", "budgets")
    office.says("rita", "budget", "show")
    office.says("rita", "budget", "log")
    office.says("owner", "database", "roles", "--readers", "all")
    assert "may not" in office.refuses("otto", "database", "roles")
