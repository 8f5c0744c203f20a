"""Every command that the pages on budgets, roles and knobs show is run, in their order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from tests.cli.conftest import Site

PAGES = Path(__file__).parents[2] / "docs" / "howto"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, language: str) -> list[str]:
    text = (PAGES / page).read_text(encoding="utf-8")
    return [body for kind, body in FENCED.findall(text) if kind == language]


def commands(page: str) -> list[list[str]]:
    lines = [line for block in blocks(page, "sh") for line in block.splitlines()]
    assert lines
    assert all(line.startswith("slurm-fairshare ") for line in lines)
    return [shlex.split(line)[1:] for line in lines]


def test_how_to_fund_a_team(site: Site) -> None:
    (tree,) = blocks("fund-a-team.md", "yaml")
    (site.folder / "tree.yaml").write_text(tree, encoding="utf-8")
    site.says("budget", "load", str(site.folder / "tree.yaml"))
    site.says("tick")
    for words in commands("fund-a-team.md"):
        site.after(minutes=1)
        site.says(*words)
    assert [row.cancels for row in site.store.changesets()].count(5) == 1


def test_how_to_let_managers_run_their_own_budgets(empty_postgres: str) -> None:
    def run(login: str | None, *words: str) -> None:
        address = make_conninfo(empty_postgres, user=login) if login else empty_postgres
        result = CliRunner().invoke(main, list(words), obj=App(Config(cluster="lab", database_url=address)))
        assert result.exit_code == 0, result.output

    (statements,) = blocks("roles.md", "sql")
    made = re.findall(r"create role (\w+)", statements)
    with psycopg.connect(empty_postgres, autocommit=True) as connection:
        if connection.execute("select from pg_roles where rolname = any(%s)", (made,)).fetchone():
            pytest.fail(f"this Postgres has roles {', '.join(made)} already; the page cannot be tried on it")
        try:
            run(None, "database", "upgrade")
            run(None, "database", "roles")
            connection.execute(statements.encode())
            for name in made:
                connection.execute(sql.SQL("alter role {} password 'pw'").format(sql.Identifier(name)))
            tree = "tree: {lab: {share: 1, children: {vision: {share: 1, children: {video: {share: 1, account: v}}}}}}"
            loaded = CliRunner().invoke(
                main, ["budget", "load", "-"], input=tree, obj=App(Config(cluster="lab", database_url=empty_postgres))
            )
            assert loaded.exit_code == 0, loaded.output
            for words in commands("roles.md"):
                run("otto" if words[0] == "budget" else None, *words)
                if words[:2] == ["budget", "grant"]:
                    run("anna", "budget", "set", "lab/vision", "video=2", "faces=1:faces", "--reason", "mine")
                    run("guest", "budget", "show")
        finally:
            for name in made:
                connection.execute(sql.SQL("drop role if exists {}").format(sql.Identifier(name)))


def test_how_to_change_a_knob(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    (scenario,) = blocks("change-a-knob.md", "yaml")
    shorter = scenario.replace("days: 10\nwarmup: 3\n", "days: 1\nwarmup: 0.5\n")
    assert shorter != scenario
    monkeypatch.chdir(site.folder)
    Path("lab.yaml").write_text(shorter, encoding="utf-8")
    compare, sweep = commands("change-a-knob.md")
    compared = site.says(*compare)
    for figure in ("delivered of owed", "worst team", "lost work", "wait debug p90"):
        assert re.search(rf"^{figure} +\S", compared, re.MULTILINE), compared
    assert len(site.says(*sweep).splitlines()) == 1 + 3 * 2
