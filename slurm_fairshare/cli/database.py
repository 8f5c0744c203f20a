"""`database`: the version of the schema."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option
from slurm_fairshare.cli.output import say, working
from slurm_fairshare.errors import StoreError


@click.group(context_settings=HELP)
@config_option
def database() -> None:
    """The schema in Postgres."""


@database.command(context_settings=HELP)
@config_option
@pass_app
def upgrade(app: App) -> None:
    """Bring the schema to the version this program needs. Running it again changes nothing."""
    from slurm_fairshare.store import schema

    with working("upgrading the schema"):
        version = schema.upgrade(app.config.database_url)
    say([f"The schema is at version {version}."])


@database.command(context_settings=HELP)
@config_option
@pass_app
def status(app: App) -> None:
    """Say which version the schema has and which this program needs. Ends with 1 where it is too old."""
    from slurm_fairshare.store import schema

    found, needed = schema.current(app.config.database_url), schema.head()
    if found is None:
        raise StoreError("the database holds no slurm-fairshare schema yet: run `slurm-fairshare database upgrade`")
    if found != needed and found in schema.versions():
        raise StoreError(
            f"the schema is version {found}, this program needs {needed}: run `slurm-fairshare database upgrade`"
        )
    say([f"The schema is at version {found}" + (", newer than this program needs." if found != needed else ".")])


@database.command(context_settings=HELP)
@config_option
@pass_app
def rebuild(app: App) -> None:
    """Make the hourly roll-ups of usage anew from the runs. `audit` says when that is needed: never, in good health."""
    with app.store() as store, working("summing every run"):
        differed, made = store.differing_rollups(), store.rebuild_rollups()
    say([f"{made} hours of accounts were summed anew; {differed} had differed from their runs."])


@database.command(context_settings=HELP)
@click.option(
    "--readers",
    type=click.Choice(["all", "budgets"]),
    help="What fairshare_reader may read: all, or budgets and how teams stand but nobody's jobs. Kept without.",
)
@click.option("--sql", "show_sql", is_flag=True, help="Print what somebody with CREATEROLE runs; change nothing.")
@config_option
@pass_app
def roles(app: App, readers: str | None, show_sql: bool) -> None:
    """Make the roles fairshare_reader, _manager, _admin and _daemon, and grant each what it may; again at any time.

    Run it as the owner of the tables. People's and the daemon's own logins are then made members of them. Roles
    belong to the whole Postgres server; those that are there already are used.
    """
    from slurm_fairshare.store.roles import GROUPS, Readers, script, set_up

    if show_sql:
        click.echo(script(), nl=False)
        return
    made = set_up(app.config.database_url, Readers(readers) if readers else None)
    say([f"Made {', '.join(made)}." if made else f"{', '.join(GROUPS)} are there.", "Each has its rights."])
