"""`uninstall`: everything of ours out of Slurm, and in words what is left to do by hand."""

from __future__ import annotations

import rich_click as click

from slurm_fairshare.cli.options import HELP, config_option, dry_run_option
from slurm_fairshare.cli.output import say
from slurm_fairshare.cli.push import apply

BEFORE = (
    "Before: stop the daemon on each host (systemctl disable --now slurm-fairshare slurm-fairshare-web "
    "slurm-fairshare-tick.timer), take lua out of JobSubmitPlugins and the includes of fairshare*.conf out of "
    "slurm.conf, and restart slurmctld.",
)
AFTER = (
    "After: jobs that wait keep the site factor and the AdminComment they were given at submit; both do nothing by "
    "themselves and go with the job (scontrol update JobId=ID SiteFactor=0 takes the first away).",
    "The accounts, the users and whatever others set in Slurm are as they were.",
    "The ledger stays in Postgres. Keep a copy if the past is to be looked at later (pg_dump --schema=fairshare), "
    "then: drop schema fairshare cascade;",
    "Last: remove the package, /etc/slurm-fairshare, the units, job_submit.lua, and the daemon's users in Slurm "
    "(sacctmgr delete user fairshare) and on this host.",
)


@click.command(context_settings=HELP)
@dry_run_option
@config_option
@click.pass_context
def uninstall(context: click.Context, dry_run: bool) -> None:
    """Take everything of ours out of Slurm, as `apply --remove` does, and say what is left to do by hand.

    Ends with 1 while jobs still use one of our QOS: run it again when they have left.
    """
    say(BEFORE)
    context.invoke(apply, dry_run=dry_run, remove=True)
    say(AFTER)
