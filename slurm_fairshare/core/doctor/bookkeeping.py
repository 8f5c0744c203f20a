"""Limits and bookkeeping: is everything counted, and are limits held."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from slurm_fairshare.core.doctor.facts import Facts, NodeFacts, Source, whole
from slurm_fairshare.core.doctor.finding import (
    ADVICE,
    ERROR,
    WARNING,
    Checks,
    Fault,
    settings,
    shell,
    slurm_conf,
    slurmdbd_conf,
    some,
)
from slurm_fairshare.units import DAY, HOUR, duration

GPU: Final = "gres/gpu"
ENFORCED: Final = {
    "associations": "a job without an account runs in nobody's budget",
    "limits": "the debug lane has no bounds",
    "qos": "any job may take any rung",
}
BACKLOG: Final = 100
"""Messages to slurmdbd that may wait at one moment on a busy cluster."""

CHECKS = Checks("Limits and bookkeeping")
check = CHECKS.check


@check(
    "accounting-storage",
    ERROR,
    "Is AccountingStorageType accounting_storage/slurmdbd?",
    "Usage, associations and QOS live in slurmdbd: without it there is nothing to share by.",
    Source.CONFIG,
)
def _storage(facts: Facts) -> Iterable[Fault]:
    found = facts.config.text("AccountingStorageType")
    if found != "accounting_storage/slurmdbd":
        line = slurm_conf("AccountingStorageType=accounting_storage/slurmdbd")
        yield Fault(f"AccountingStorageType is {found or 'not set'}.", line)


@check(
    "enforce",
    ERROR,
    "Does AccountingStorageEnforce hold associations, limits and qos?",
    "Without associations a job without an account runs in nobody's budget; without limits the debug lane has no "
    "bounds; without qos any job may take any rung.",
    Source.CONFIG,
)
def _enforce(facts: Facts) -> Iterable[Fault]:
    found = facts.config.words("AccountingStorageEnforce")
    lacks = [] if "all" in found else [word for word in ENFORCED if word not in found]
    if lacks:
        joined = ",".join([*sorted(found), *lacks])
        yield Fault(
            f"AccountingStorageEnforce lacks {', '.join(lacks)}: {'; '.join(ENFORCED[word] for word in lacks)}.",
            slurm_conf(f"AccountingStorageEnforce={joined}"),
        )


@check(
    "gpu-tres",
    ERROR,
    "Does AccountingStorageTRES hold gres/gpu itself, not only types of it?",
    "slurmdbd counts only what is listed: without gres/gpu no GPU-hour is ever charged, and with types alone jobs that "
    "name no type are missed.",
    Source.CONFIG,
)
def _gpu_tres(facts: Facts) -> Iterable[Fault]:
    tracked = facts.config.words("AccountingStorageTRES")
    if GPU not in tracked:
        typed = sorted(name for name in tracked if name.startswith(f"{GPU}:"))
        only = f", only {', '.join(typed)}" if typed else ""
        line = slurm_conf(f"AccountingStorageTRES={','.join([GPU, *typed])}")
        yield Fault(f"AccountingStorageTRES does not list gres/gpu{only}.", line)


@check(
    "gpus-uncounted",
    ERROR,
    "Does Slurm count the GPUs of every node that has some?",
    "A node whose GPUs are not in its CfgTRES has no capacity here, and what runs on it is never charged.",
    Source.NODES,
)
def _gpus_uncounted(facts: Facts) -> Iterable[Fault]:
    blind = sorted(node.name for node in facts.nodes if _gpu_types(node) is not None and not _counted(node))
    if blind:
        yield Fault(
            f"Nodes with GPUs that Slurm does not count: {some(blind)}.",
            slurm_conf("AccountingStorageTRES=gres/gpu    # then restart slurmctld"),
            subject=f"node {blind[0]}",
        )


@check(
    "gpu-types",
    ADVICE,
    "Is each type of GPU in AccountingStorageTRES where there are several?",
    "A type that is not listed cannot be told apart in reports or weighed differently, and never for the past.",
    Source.CONFIG,
    Source.NODES,
)
def _types(facts: Facts) -> Iterable[Fault]:
    kinds = sorted({kind for node in facts.nodes for kind in _gpu_types(node) or () if kind})
    lacks = [kind for kind in kinds if f"{GPU}:{kind.lower()}" not in facts.config.words("AccountingStorageTRES")]
    if len(kinds) > 1 and lacks:
        line = slurm_conf(f"AccountingStorageTRES={','.join([GPU, *(f'{GPU}:{kind}' for kind in kinds)])}")
        yield Fault(f"The nodes have {', '.join(kinds)}; not tracked: {', '.join(lacks)}.", line)


def _gpu_types(node: NodeFacts) -> tuple[str, ...] | None:
    """The types of its GPUs ("" where none is given), None where it has no GPU."""
    parts = re.sub(r"\([^)]*\)", "", node.gres).split(",")
    gpus = [part.split(":") for part in parts if part.split(":")[0] == "gpu"]
    found = tuple(part[1] if len(part) > 2 or (len(part) == 2 and not part[1].isdigit()) else "" for part in gpus)
    return found or None


def _counted(node: NodeFacts) -> bool:
    return any(name == GPU or name.startswith(f"{GPU}:") for name in node.tres)


@check(
    "store-comment",
    ADVICE,
    "Does AccountingStoreFlags hold job_comment?",
    "Without it nobody can see after a job's end what its user had asked for.",
    Source.CONFIG,
)
def _store_comment(facts: Facts) -> Iterable[Fault]:
    if "job_comment" not in facts.config.words("AccountingStoreFlags"):
        line = slurm_conf(facts.config.with_option("AccountingStoreFlags", "job_comment"))
        yield Fault("AccountingStoreFlags lacks job_comment.", line)


@check(
    "usage-factor",
    WARNING,
    "Do the rungs have UsageFactor 1?",
    "The ledger counts GPU-seconds as they are; with another factor sshare and sreport tell users another story, and "
    "with 0 Slurm's own limits by GPU-minutes are blind.",
    Source.QOS,
)
def _usage_factor(facts: Facts) -> Iterable[Fault]:
    for rung in facts.wanted.ladder.rungs:
        has = facts.qos.get(rung.name)
        if has is not None and has.usage_factor != 1.0:
            yield Fault(
                f"QOS {rung.name} has UsageFactor {has.usage_factor:g}.",
                shell(f"sacctmgr modify qos where name={rung.name} set UsageFactor=1"),
                subject=f"QOS {rung.name}",
            )


@check(
    "cluster-name",
    ERROR,
    "Do the settings name the cluster that answers?",
    "Budgets, ledger and accounting are kept by cluster: another cluster's usage would rank this one's jobs.",
    Source.CONFIG,
)
def _cluster_name(facts: Facts) -> Iterable[Fault]:
    found = facts.config.text("ClusterName")
    if found and found != facts.wanted.cluster:
        yield Fault(
            f'The settings say cluster "{facts.wanted.cluster}"; the slurmctld that answers is "{found}".',
            settings(f'cluster = "{found}"'),
        )


@check(
    "cluster-unregistered",
    ERROR,
    "Does slurmdbd know the cluster?",
    "Without it there are no associations, no QOS and no accounting.",
    Source.CLUSTERS,
)
def _unregistered(facts: Facts) -> Iterable[Fault]:
    if facts.wanted.cluster not in facts.clusters:
        known = ", ".join(sorted(facts.clusters)) or "none"
        yield Fault(
            f'slurmdbd knows no cluster "{facts.wanted.cluster}" (it knows: {known}).',
            shell(f"sacctmgr add cluster {facts.wanted.cluster}"),
        )


@check(
    "purge",
    WARNING,
    "Does slurmdbd keep jobs for longer than the lookback?",
    "What is purged before the ledger has read it is never charged, and `audit` cannot prove what it cannot see.",
    Source.ACCOUNTING,
)
def _purge(facts: Facts) -> Iterable[Fault]:
    found = facts.accounting.text("PurgeJobAfter")
    kept = _kept(found)
    if kept is not None and kept <= max(facts.wanted.lookback, facts.wanted.first_poll).total_seconds():
        yield Fault(f"PurgeJobAfter is {found}.", slurmdbd_conf("PurgeJobAfter=12months"))


def _kept(text: str) -> int | None:
    """Seconds in slurmdbd's `12hours`, `30days`, `6months`, `12months*`; None for no purge."""
    number, unit = whole(text), re.sub(r"[^a-z]", "", text.lower())
    if number is None:
        return None
    return number * {"h": HOUR, "d": DAY}.get(unit[:1], 30 * DAY)


@check(
    "max-query-range",
    WARNING,
    "May the daemon's user ask slurmdbd for a day and more at once?",
    "The daemon reads accounting in stretches of up to a day; users below Operator are held to MaxQueryTimeRange.",
    Source.ACCOUNTING,
    Source.RIGHTS,
)
def _max_query_range(facts: Facts) -> Iterable[Fault]:
    found = facts.accounting.seconds("MaxQueryTimeRange")
    privileged = facts.rights.level in ("Operator", "Administrator") or facts.rights.uid == 0
    if found is not None and found < DAY and not privileged:
        shown = facts.accounting.text("MaxQueryTimeRange")
        yield Fault(f"MaxQueryTimeRange is {shown}.", slurmdbd_conf("MaxQueryTimeRange=31-00:00:00"))


@check(
    "runaway-jobs",
    WARNING,
    "Does no job run in slurmdbd's eyes that slurmctld does not know?",
    "Such a job grows for ever in accounting; sreport and sshare count it against its team.",
    Source.RUNAWAYS,
)
def _runaways(facts: Facts) -> Iterable[Fault]:
    if facts.runaways:
        number = len(facts.runaways)
        yield Fault(
            f"{number} runaway {'job' if number == 1 else 'jobs'}: {some(facts.runaways)}.",
            shell("sacctmgr show runawayjobs    # answer y to end them"),
        )


@check(
    "slurmdbd-backlog",
    WARNING,
    "Are few messages from slurmctld to slurmdbd waiting?",
    "While they wait, starts and ends of jobs are missing in accounting, and the ranking is computed without them.",
    Source.BACKLOG,
)
def _backlog(facts: Facts) -> Iterable[Fault]:
    if facts.backlog > BACKLOG:
        yield Fault(
            f"{facts.backlog} messages wait for slurmdbd.",
            shell("sdiag | grep 'DBD Agent'; systemctl status slurmdbd mariadb"),
        )


def longest_limit(facts: Facts) -> tuple[str, int] | None:
    """The partition under contract that lets jobs run longest, and for how many seconds."""
    limits = [(one.max_time, one.name) for one in facts.partitions if facts.under_contract(one.name) and one.max_time]
    return (max(limits)[1], max(limits)[0]) if limits else None


@check(
    "lookback-short",
    WARNING,
    "Is the lookback as long as the longest job may run?",
    "A job longer than the window leaves it while it still runs: its first days are forgotten before it has ended.",
    Source.PARTITIONS,
)
def _lookback(facts: Facts) -> Iterable[Fault]:
    found = longest_limit(facts)
    if found is not None and found[1] > facts.wanted.lookback.total_seconds():
        name, length = found
        days = -(-length // DAY)
        yield Fault(
            f"Partition {name} lets a job run for {duration(length)}; the lookback is "
            f"{duration(facts.wanted.lookback.total_seconds())}.",
            settings(f'[fairshare]\nlookback = "{days}d"'),
            subject=f"partition {name}",
        )


@check(
    "half-life-short",
    WARNING,
    "Is the half-life, where there is one, as long as the longest job may run?",
    "Where usage is half forgotten before a job ends, long jobs cost their team less than short ones.",
    Source.PARTITIONS,
)
def _half_life(facts: Facts) -> Iterable[Fault]:
    found, half_life = longest_limit(facts), facts.wanted.half_life
    if found is not None and half_life is not None and found[1] > half_life.total_seconds():
        name, length = found
        yield Fault(
            f"Partition {name} lets a job run for {duration(length)}; usage is halved every "
            f"{duration(half_life.total_seconds())}.",
            settings(f'[fairshare]\nhalf_life = "{-(-length // DAY)}d"'),
            subject=f"partition {name}",
        )


@check(
    "first-poll-short",
    WARNING,
    "Does the first poll reach back over the whole lookback?",
    "A ledger that starts with less ranks teams as if they had used nothing before.",
)
def _first_poll(facts: Facts) -> Iterable[Fault]:
    wanted = facts.wanted
    if wanted.first_poll < wanted.lookback:
        days = -(-int(wanted.lookback.total_seconds()) // DAY) + 1
        yield Fault(
            f"daemon.first_poll is {duration(wanted.first_poll.total_seconds())}, the lookback "
            f"{duration(wanted.lookback.total_seconds())}.",
            settings(f'[daemon]\nfirst_poll = "{days}d"'),
        )
