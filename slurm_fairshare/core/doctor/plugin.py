"""job_submit.lua: loaded, ours, of this version, with this site's settings, and answering."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from slurm_fairshare.core.contract import spell
from slurm_fairshare.core.doctor.facts import Facts, Source
from slurm_fairshare.core.doctor.finding import ADVICE, ERROR, WARNING, Checks, Fault, shell, slurm_conf

BEGIN: Final = "-- settings: begin\n"
END: Final = "-- settings: end\n"
OVER_CAP: Final = re.compile(r"is over the cap of (\S+?):")
RENDER: Final = "slurm-fairshare plugin > /etc/slurm/job_submit.lua    # on the controller"

CHECKS = Checks("The plugin")
check = CHECKS.check


@check(
    "submit-plugins",
    ERROR,
    "Does JobSubmitPlugins hold lua?",
    "Without it nobody reads what a job declares: every job runs without a contract.",
    Source.CONFIG,
)
def _submit_plugins(facts: Facts) -> Iterable[Fault]:
    found = facts.config.words("JobSubmitPlugins")
    if "lua" not in {word.removeprefix("job_submit/") for word in found}:
        line = slurm_conf(f"JobSubmitPlugins={','.join([*sorted(found), 'lua'])}    # then restart slurmctld")
        yield Fault(f"JobSubmitPlugins is {facts.config.text('JobSubmitPlugins') or 'not set'}.", line)


@check(
    "plugin-foreign",
    ERROR,
    "Is the job_submit.lua beside slurm.conf the product's?",
    "Another script in its place reads no contract.",
    Source.PLUGIN,
)
def _foreign(facts: Facts) -> Iterable[Fault]:
    if not _ours(facts.plugin.text):
        yield Fault(f"{facts.plugin.place} is none of ours.", shell(RENDER))


@check(
    "plugin-version",
    WARNING,
    "Is job_submit.lua the one this version of the product brings?",
    "An older one may read a contract otherwise than the daemon and the reports do.",
    Source.PLUGIN,
)
def _version(facts: Facts) -> Iterable[Fault]:
    has, wanted = facts.plugin.text, facts.plugin.wanted
    if _ours(has) and _code(has) != _code(wanted):
        yield Fault(
            f"{facts.plugin.place} says version {_setting(has, 'version')} and its code differs from that of "
            f"{_setting(wanted, 'version')}, which is installed here.",
            shell(RENDER),
        )


@check(
    "plugin-settings",
    ERROR,
    "Does job_submit.lua hold this site's settings?",
    "It would put jobs on rungs that are not there, allow another cap, or leave out partitions and accounts.",
    Source.PLUGIN,
)
def _settings(facts: Facts) -> Iterable[Fault]:
    has, wanted = facts.plugin.text, facts.plugin.wanted
    if not _ours(has):
        return
    differ = [name for name in _names(wanted) if name != "version" and _setting(has, name) != _setting(wanted, name)]
    if differ:
        yield Fault(f"{facts.plugin.place} differs from the settings in {', '.join(differ)}.", shell(RENDER))
    elif _setting(has, "version") != _setting(wanted, "version") and _code(has) == _code(wanted):
        yield Fault(
            f'{facts.plugin.place} was not rendered by this version (it says "{_setting(has, "version")}").',
            shell(RENDER),
            severity=ADVICE,
        )


@check(
    "plugin-trust",
    WARNING,
    "Does job_submit.lua trust the daemon's user?",
    "Otherwise every change the daemon makes to a job is looked at as if its owner had made it, and some are refused.",
    Source.PLUGIN,
    Source.RIGHTS,
)
def _trust(facts: Facts) -> Iterable[Fault]:
    ours = facts.rights.user in facts.wanted.trusted_users
    if _ours(facts.plugin.text) and ours and facts.rights.uid not in facts.plugin.trusted_uids:
        yield Fault(
            f"{facts.plugin.place} does not trust uid {facts.rights.uid} ({facts.rights.user}).",
            shell(f"slurm-fairshare plugin --trusted-uid {facts.rights.uid} > /etc/slurm/job_submit.lua"),
        )


@check(
    "plugin-silent",
    ERROR,
    "Does the plugin that slurmctld runs refuse a contract over the cap?",
    "A script that cannot be loaded leaves the one before it in force, or none: only its answer shows what runs.",
    Source.CONFIG,
    Source.PROBE,
)
def _silent(facts: Facts) -> Iterable[Fault]:
    if OVER_CAP.search(facts.probe) is None:
        said = " ".join(facts.probe.split())[:160] or "nothing"
        yield Fault(
            f'A job that declares 9999 days was not refused by the plugin; sbatch said "{said}".',
            shell("grep -i lua /var/log/slurm/slurmctld.log | tail; " + RENDER),
        )


@check(
    "plugin-cap",
    ERROR,
    "Is the cap of the plugin that slurmctld runs that of the settings?",
    "A file with an older date than the one before it is not loaded (cp -p, rsync -t, a package put back): slurmctld "
    "goes on with the old settings.",
    Source.PROBE,
)
def _cap(facts: Facts) -> Iterable[Fault]:
    found = OVER_CAP.search(facts.probe)
    wanted = spell(facts.wanted.ladder.cap)
    if found is not None and found.group(1) != wanted:
        yield Fault(
            f"The plugin in force caps contracts at {found.group(1)}, the settings at {wanted}.",
            shell(f"{RENDER}\ntouch /etc/slurm/job_submit.lua"),
        )


def _ours(text: str) -> bool:
    return text.count(BEGIN) == 1 and text.count(END) == 1


def _code(text: str) -> str:
    """Everything but the settings, which are the site's."""
    head, _, rest = text.partition(BEGIN)
    return head + rest.partition(END)[2]


def _block(text: str) -> str:
    return text.partition(BEGIN)[2].partition(END)[0]


def _names(text: str) -> list[str]:
    return re.findall(r"^  (\w+) = ", _block(text), re.MULTILINE)


def _setting(text: str, name: str) -> str:
    """A setting as it is written, over several lines where it is a table, without blanks, strings as they read."""
    match = re.search(rf"^  {name} = (.*?),?$(?=\n  \w+ = |\n\}})", _block(text), re.MULTILINE | re.DOTALL)
    written = re.sub(r"\s+", "", match.group(1)) if match else ""
    plain = re.sub(r"\\(\d{3})", lambda found: chr(int(found.group(1))), written)
    return plain.strip('"').replace(",}", "}")
