"""`plugin`: the site's job_submit.lua."""

from __future__ import annotations

import pwd

import rich_click as click

from slurm_fairshare import __version__
from slurm_fairshare.cli.app import App, pass_app
from slurm_fairshare.cli.options import HELP, config_option
from slurm_fairshare.config import Config
from slurm_fairshare.errors import ConfigError
from slurm_fairshare.slurm.plugin import PluginSettings, render


@click.command(context_settings=HELP)
@click.option(
    "--trusted-uid",
    "uids",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="UID",
    help="In place of the uids this machine gives slurm.trusted_users. Root is always trusted.",
)
@config_option
@pass_app
def plugin(app: App, uids: tuple[int, ...]) -> None:
    """Print job_submit.lua with this site's settings, to be put beside slurm.conf."""
    click.echo(render(plugin_settings(app.config, uids or _uids(app.config))), nl=False)


def plugin_settings(config: Config, uids: tuple[int, ...]) -> PluginSettings:
    """The plugin's settings as the site's settings say them."""
    contract = config.contract
    return PluginSettings(
        version=__version__,
        ladder=config.ladder,
        default_min_runtime=int(contract.default_min_runtime.total_seconds()),
        debug=config.lane,
        partitions=contract.partitions,
        exempt_accounts=contract.exempt_accounts,
        other_qos=contract.other_qos,
        near=(contract.near_feature, contract.near_gpus) if contract.near_feature else None,
        trusted_uids=tuple(sorted({0, *uids})),
    )


def _uids(config: Config) -> tuple[int, ...]:
    return tuple(_uid(name) for name in config.slurm.trusted_users)


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ConfigError(
            f"slurm.trusted_users names {name}, whom this machine does not know: create the user, name another, "
            "or give its uid on the controller with --trusted-uid"
        ) from None
