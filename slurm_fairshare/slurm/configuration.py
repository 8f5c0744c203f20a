"""What the doctor looks at in Slurm: read once, each source for itself, nothing changed.

A source that cannot be read is noted with the reason. Where a daemon does not answer, it is asked one question and
not all of them.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from posixpath import dirname, isabs, join
from typing import Any

from ClusterShell.NodeSet import NodeSet

from slurm_fairshare.core.doctor.facts import (
    Clocks,
    Configuration,
    Facts,
    HeldQos,
    NodeFacts,
    Partition,
    PluginFile,
    Rights,
    Source,
    Waiting,
    seconds,
)
from slurm_fairshare.core.plan import Held
from slurm_fairshare.errors import FairshareError, SlurmUnreachable, SlurmUnreadable
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.settings import ProcessMemo, SettingsReader
from slurm_fairshare.slurm.tres import NOTHING, pairs

QOS_FIELDS = ("Name", "GraceTime", "PreemptExemptTime", "Preempt", "PreemptMode", "Flags", "UsageFactor")
NO_UID = frozenset({"4294967294", "4294967295"})
PROBE = ("--test-only", "--output=/dev/null", "--licenses=slurm-fairshare-doctor", "--comment=min_runtime=9999d")
"""A job that cannot be: over any cap, with a licence that does not exist, and only tested. It is never queued."""

DEEPEST_INCLUDE = 5

_CONTROLLER = frozenset(
    {Source.CONFIG, Source.PARTITIONS, Source.NODES, Source.QUEUE, Source.BACKLOG, Source.HELD, Source.USERS,
     Source.PROBE, Source.RUNAWAYS}
)  # fmt: skip
_DATABASE = frozenset(
    {Source.ACCOUNTING, Source.QOS, Source.RIGHTS, Source.CLUSTERS, Source.HELD, Source.RUNAWAYS}
)  # fmt: skip
_OF_THE_FILE = frozenset({Source.FILE, Source.PLUGIN})

Render = Callable[[frozenset[int]], str]
"""The plugin file that the site's settings make, with these uids trusted."""


def read(runner: Runner, facts: Facts, render: Render, clock: Callable[[], float] = time.time) -> Facts:
    """The facts with all of Slurm's sources filled in. `facts` brings the settings, the tree and the moment."""
    reading = _Reading(runner, facts)
    reading.controller(clock)
    reading.accounting()
    reading.files(render)
    return reading.facts


@dataclass
class _Reading:
    """The facts as they are gathered."""

    runner: Runner
    facts: Facts
    unread: dict[Source, str] = field(init=False)

    def __post_init__(self) -> None:
        self.unread = dict(self.facts.unread)

    @contextmanager
    def source(self, *sources: Source) -> Iterator[None]:
        """What fails inside leaves these sources unread."""
        try:
            yield
        except FairshareError as error:
            for source in sources:
                self.unread.setdefault(source, str(error))
        except ValueError as error:
            for source in sources:
                self.unread.setdefault(source, f"the answer is not understood: {error}")
        finally:
            self.facts = replace(self.facts, unread=dict(self.unread))

    def set(self, **values: Any) -> None:
        self.facts = replace(self.facts, **values)

    # --- slurmctld

    def controller(self, clock: Callable[[], float]) -> None:
        try:
            began = clock()
            text = self.runner.read("scontrol", "show", "config").stdout
            ended = clock()
        except FairshareError as error:
            self.unread |= dict.fromkeys(_CONTROLLER | _OF_THE_FILE, str(error))
            self.set(unread=dict(self.unread))
            return
        with self.source(Source.CONFIG):
            self.set(config=parse_configuration(text))
        self.set(clocks=(*self.facts.clocks, *_clock_of(text, began, ended)))
        with self.source(Source.PARTITIONS):
            self.set(partitions=parse_partitions(self._show("partitions")))
        with self.source(Source.NODES):
            self.set(nodes=parse_nodes(self._show("nodes")))
        with self.source(Source.QUEUE):
            self.set(queue=parse_queue(self.runner.read("squeue", "-a", "-h", "-o", "%T|%q").stdout))
        with self.source(Source.BACKLOG):
            self.set(backlog=parse_backlog(self.runner.read("sdiag").stdout))
        with self.source(Source.USERS):
            self.set(users=parse_users(self._show("assoc_mgr", "flags=users,assoc")))
        with self.source(Source.PROBE):
            self.set(probe=self._probe())

    def _show(self, *what: str) -> str:
        return self.runner.read("scontrol", "-o", "show", *what).stdout

    def _probe(self) -> str:
        """What sbatch says to a job that the plugin must refuse. The first of the tree's accounts is named, since the
        account of whoever runs this may be exempt; Slurm looks at it only after the plugin has spoken."""
        leaf = next(iter(self.facts.tree.leaves), None)
        account = [f"--account={leaf.account}"] if leaf is not None else []
        partition = [f"--partition={self.facts.wanted.partitions[0]}"] if self.facts.wanted.partitions else []
        answer = self.runner.ask("sbatch", *PROBE, *account, *partition, "--wrap=true")
        return f"{answer.stdout}\n{answer.stderr}".strip()

    # --- slurmdbd

    def accounting(self) -> None:
        try:
            # Where slurmdbd does not answer, this ends well all the same and shows the client's half only.
            self.set(accounting=parse_accounting(self.runner.read("sacctmgr", "show", "configuration").stdout))
        except FairshareError as error:
            for source in _DATABASE:
                self.unread.setdefault(source, str(error))
            self.set(unread=dict(self.unread))
            return
        with self.source(Source.QOS):
            self.set(qos=parse_qos(self._list("qos", f"format={','.join(QOS_FIELDS)}")))
        with self.source(Source.CLUSTERS):
            self.set(clusters=frozenset(filter(None, self._list("cluster", "format=Cluster").split("\n"))))
        with self.source(Source.RIGHTS):
            self.set(rights=self._rights())
        if Source.CONFIG in self.unread:
            return
        with self.source(Source.HELD):
            self.set(held=self._held())
        with self.source(Source.RUNAWAYS):
            self.set(runaways=self._runaways())

    def _list(self, *what: str) -> str:
        return self.runner.read("sacctmgr", "-n", "-P", "show", *what).stdout

    def _held(self) -> Held:
        reader = SettingsReader(self.runner, self.facts.wanted.cluster, ProcessMemo())
        return reader.held(self.facts.now, refresh=True)

    def _rights(self) -> Rights:
        user = self.runner.read("id", "-u", "-n").stdout.strip()
        uid = int(self.runner.read("id", "-u").stdout)
        host = self.runner.read("uname", "-n").stdout.strip()
        rows = self._list("user", f"name={user}", "format=User,AdminLevel").split("\n")
        levels = [row.partition("|")[2] for row in rows if row.startswith(f"{user}|")]
        return Rights(user, uid, host, levels[0] if levels else "")

    def _runaways(self) -> tuple[str, ...]:
        """slurmdbd first: a job that starts in between is known to slurmctld, and one that ends stays listed for
        MinJobAge."""
        now = int(self.facts.now.timestamp())
        words = ("-a", "-X", "-D", "-n", "-P", "-s", "RUNNING", "-S", f"uts{now}", "-E", f"uts{now + 1}")
        running = self.runner.read("sacct", *words, "-o", "JobIDRaw").stdout.split()
        if not running:
            return ()
        known = self.runner.read("squeue", "-a", "-h", "-t", "all", "-o", "%A").stdout.split()
        return tuple(job for job in dict.fromkeys(running) if job not in set(known))

    # --- files beside slurm.conf

    def files(self, render: Render) -> None:
        place = self.facts.config.text("SLURM_CONF")
        if Source.CONFIG in self.unread or not place:
            self.unread |= dict.fromkeys(_OF_THE_FILE - self.unread.keys(), "slurmctld does not say where it is")
            self.set(unread=dict(self.unread))
            return
        with self.source(Source.FILE):
            self.set(lines=_grouped(self._lines(place)))
        with self.source(Source.PLUGIN):
            lua = join(dirname(place), "job_submit.lua")
            text = self.runner.read("cat", lua).stdout
            uids = trusted_uids(text)
            self.set(plugin=PluginFile(lua, text, render(uids), uids))

    def _lines(self, place: str, depth: int = 0) -> list[tuple[str, str]]:
        """Parameters and values in the order in which Slurm reads them."""
        found = []
        for name, value in parse_file(self.runner.read("cat", place).stdout):
            if name == "include" and depth < DEEPEST_INCLUDE:
                inner = value if isabs(value) else join(dirname(place), value)
                found += self._lines(inner, depth + 1)
            else:
                found.append((name, value))
        return found


def _grouped(lines: list[tuple[str, str]]) -> Mapping[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in lines:
        found[name] = (*found.get(name, ()), value)
    return found


def parse_configuration(text: str) -> Configuration:
    """Read `scontrol show config`, or one section of `sacctmgr show configuration`: `Name = value` lines."""
    rows = (line.partition("=") for line in text.split("\n") if re.match(r"\S+\s*=", line))
    values = {name.strip(): value.strip() for name, _, value in rows}
    if not values:
        raise SlurmUnreadable(f'no configuration in what was printed: "{text.strip()[:200]}"')
    return Configuration(values)


def parse_accounting(text: str) -> Configuration:
    """slurmdbd's own section. Without it slurmdbd did not answer, whatever the exit code says."""
    _, mark, section = text.partition("SlurmDBD configuration:")
    if not mark:
        raise SlurmUnreachable("sacctmgr shows no configuration of slurmdbd: start slurmdbd, or check the network")
    return parse_configuration(section)


def _clock_of(text: str, began: float, ended: float) -> tuple[Clocks, ...]:
    """slurmctld's clock against ours: it says when it answered, in whole seconds."""
    found = re.search(r"as of (\d+)", text.partition("\n")[0])
    if found is None:
        return ()
    middle = (began + ended) / 2
    return (Clocks("slurmctld", int(found.group(1)) + 0.5 - middle, (ended - began) / 2 + 0.5),)


def _word(line: str, name: str) -> str:
    found = re.search(rf"(?:^|\s){name}=(\S*)", line)
    return "" if found is None or found.group(1) in NOTHING else found.group(1)


def parse_partitions(text: str) -> tuple[Partition, ...]:
    """Read `scontrol -o show partitions`."""
    return tuple(_partition(line) for line in text.split("\n") if line.startswith("PartitionName="))


def _partition(line: str) -> Partition:
    allow = _names(_word(line, "AllowQos"))
    return Partition(
        name=_word(line, "PartitionName"),
        nodes=frozenset(NodeSet(_word(line, "Nodes"))),
        qos=_word(line, "QoS"),
        allow_qos=None if not allow or allow == {"ALL"} else allow,
        deny_qos=_names(_word(line, "DenyQos")),
        priority_tier=int(_word(line, "PriorityTier") or 1),
        max_time=_limit(_word(line, "MaxTime")),
    )


def _limit(text: str) -> int | None:
    return None if text in ("", "UNLIMITED", "NONE", "INFINITE") else seconds(text)


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)


def parse_nodes(text: str) -> tuple[NodeFacts, ...]:
    """Read `scontrol -o show nodes`, GPUs that go uncounted included: the doctor is to name those."""
    return tuple(_node(line) for line in text.split("\n") if line.startswith("NodeName="))


def _node(line: str) -> NodeFacts:
    reason = re.search(r"\sReason=(.*?)(?:\s\[[^\]]*\])?\s*$", line)
    return NodeFacts(
        name=_word(line, "NodeName"),
        states=frozenset(re.sub(r"[*~#!%$@^-]+$", "", _word(line, "State")).split("+")),
        gres=_word(line, "Gres"),
        tres=pairs(_word(line, "CfgTRES")),
        reason=reason.group(1).strip() if reason else "",
        version=_word(line, "Version"),
    )


def parse_queue(text: str) -> Waiting:
    """Read `squeue -o "%T|%q"`: a pending array is one line, as it is one for backfill."""
    rows = [line.split("|") for line in text.split("\n") if line.count("|") == 1]
    return Waiting(sum(state == "PENDING" for state, _ in rows), Counter(qos for _, qos in rows))


def parse_backlog(text: str) -> int:
    found = re.search(r"DBD Agent queue size:\s*(\d+)", text)
    if found is None:
        raise SlurmUnreadable("sdiag does not say how many messages wait for slurmdbd")
    return int(found.group(1))


def parse_users(text: str) -> dict[str, bool]:
    """Read associations of `scontrol -o show assoc_mgr`: users, and whether slurmctld knows their uid."""
    found = re.findall(r"^ClusterName=\S* Account=\S* UserName=(\S+?)\((\d+)\) ", text, re.MULTILINE)
    return {name: uid not in NO_UID for name, uid in found}


def parse_qos(text: str) -> dict[str, HeldQos]:
    """Read `sacctmgr -nP show qos` with QOS_FIELDS. A time that is not set is None: Slurm tells it from 0."""
    found = {}
    for line in filter(None, text.split("\n")):
        values = line.split("|")
        if len(values) != len(QOS_FIELDS):
            raise SlurmUnreadable(f'sacctmgr show qos printed a line that is not understood: "{line[:300]}"')
        name, grace, exempt, preempts, modes, flags, factor = values
        found[name] = HeldQos(
            name=name,
            exempt=seconds(exempt),
            grace=seconds(grace),
            preempts=_names(preempts),
            modes=_names(modes.lower()),
            flags=_names(flags.lower()),
            usage_factor=float(factor or 1),
        )
    return found


_SKIPPED = ("nodename", "nodeset", "partitionname", "downnodes", "frontendname", "switchname")


def parse_file(text: str) -> Iterator[tuple[str, str]]:
    """The parameters of one file in their order, names in lower case; ("include", place) where another comes in."""
    for line in re.sub(r"\\\n", "", text).split("\n"):
        line = re.sub(r"(?<!\\)#.*", "", line).strip()
        included = re.match(r"include\s+(\S+)", line, re.IGNORECASE)
        if included:
            yield "include", included.group(1)
        elif line.partition("=")[0].strip().lower() not in _SKIPPED:
            for name, value in re.findall(r"(\w+)\s*=\s*(\"[^\"]*\"|\S+)", line):
                yield name.lower(), value.strip('"')


def trusted_uids(text: str) -> frozenset[int]:
    """The uids that a plugin file trusts."""
    found = re.search(r"^\s*trusted_uids = \{([\d, ]*)\}", text, re.MULTILINE)
    return frozenset(int(uid) for uid in found.group(1).split(",") if uid.strip()) if found else frozenset()
