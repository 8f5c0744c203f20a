"""GPU-seconds as sreport tells them: slurmdbd's own roll-ups, to check ours against."""

from __future__ import annotations

from slurm_fairshare.core.tree import account_key
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import SlurmUnreadable
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.tres import GPU

FIELDS = ("Account", "Login", "TresName", "Used")


def reported(runner: Runner, cluster: str, window: Window) -> dict[tuple[str, str], int]:
    """GPU-seconds by account key and user in the window, which lies on whole hours: sreport rounds to them."""
    words = ["-n", "-P", "-t", "Seconds", "-T", GPU, "cluster", "AccountUtilizationByUser", f"cluster={cluster}"]
    words += [f"start={window.start:%Y-%m-%dT%H:%M:%S}", f"end={window.end:%Y-%m-%dT%H:%M:%S}"]
    return parse_report(runner.read("sreport", *words, f"format={','.join(FIELDS)}").stdout)


def parse_report(text: str) -> dict[tuple[str, str], int]:
    """Rows without a user are the accounts' sums, which hold those of the accounts below: left out.

    >>> parse_report("root||gres/gpu|48\\nbio||gres/gpu|48\\nbio|alice|gres/gpu|48\\n")
    {('bio', 'alice'): 48}
    """
    found: dict[tuple[str, str], int] = {}
    for row in text.split("\n"):
        values = row.split("|")
        if not row.strip():
            continue
        if len(values) != len(FIELDS) or not values[3].isascii() or not values[3].isdigit():
            raise SlurmUnreadable(f'sreport printed a row that is not understood: "{row[:300]}"')
        account, user, tres, used = values
        if user and tres == GPU and int(used):
            key = (account_key(account), user)
            found[key] = found.get(key, 0) + int(used)
    return found
