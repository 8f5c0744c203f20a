"""`web`: the dashboard."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.logs import configure_logs
from slurm_fairshare.cli.options import HELP, config_option
from slurm_fairshare.cli.output import warn
from slurm_fairshare.errors import ConfigError


@click.command(context_settings=HELP)
@click.option("--listen", metavar="HOST:PORT", help="Where to listen, in place of the setting web.listen.")
@config_option
@pass_app
def web(app: App, listen: str | None) -> None:
    """Serve the dashboard: read-only pages and a JSON API over what the ticks recorded. Stops on SIGTERM.

    It asks Slurm nothing. Who may look is settled by the section [web] of the settings: everybody who reaches the
    address, or whom the site's proxy has signed in, with what the roles in Postgres let them see.
    """
    try:
        from slurm_fairshare.web.server import serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the dashboard needs {error.name}, which is not installed: pip install 'slurm-fairshare[web]'"
        ) from error
    config = app.config
    if listen is not None:
        section = type(config.web)(**{**config.web.model_dump(), "listen": listen})
        config = config.model_copy(update={"web": section})
    configure_logs(config.log_format)
    warn(f"slurm-fairshare web: http://{config.web.listen}{config.web.root_path}/")
    if config.web.user_header is None and config.web.host_and_port[0] not in ("127.0.0.1", "::1", "localhost"):
        warn("slurm-fairshare web: open to everybody who reaches this address (web.user_header is not set)")
    serve(config)
