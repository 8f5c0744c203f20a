"""`database upgrade` and `status` on a real Postgres."""

from __future__ import annotations

from click.testing import CliRunner, Result

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.config import Config
from slurm_fairshare.store.schema import head


def run(address: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["database", *words], obj=App(Config(database_url=address)))


def test_an_empty_database_says_what_to_run_and_after_it_all_is_well(empty_postgres: str) -> None:
    before = run(empty_postgres, "status")
    assert before.exit_code == 1
    assert "run `slurm-fairshare database upgrade`" in before.stderr
    for _ in range(2):  # a second time changes nothing
        assert run(empty_postgres, "upgrade").stdout == f"The schema is at version {head()}.\n"
    assert run(empty_postgres, "status").stdout == f"The schema is at version {head()}.\n"


def test_a_database_that_is_down_ends_with_1_and_no_password_in_the_message() -> None:
    result = run("postgresql://fairshare:s3cret@127.0.0.1:1/fairshare", "status")
    assert result.exit_code == 1
    assert "127.0.0.1:1" in result.stderr
    assert "s3cret" not in result.output


def test_a_report_on_a_database_without_schema_says_what_to_run(empty_postgres: str) -> None:
    app = App(Config(database_url=empty_postgres))
    result = CliRunner().invoke(main, ["shares"], obj=app)
    assert result.exit_code == 1
    assert "database upgrade" in result.stderr
