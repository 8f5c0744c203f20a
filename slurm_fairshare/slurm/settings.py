"""QOS and associations: what Slurm holds.

slurmctld tells the priorities and the names (`scontrol show assoc_mgr`), and nothing else we need: which QOS
an account may use, and a QOS's times and whom it preempts, only slurmdbd tells (`sacctmgr`). Those change
when somebody changes them, so they are remembered with a fingerprint of what slurmctld shows and asked for
again when that differs, when they are old, and after every change of our own.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from slurm_fairshare.core.plan import Association, Held, Qos
from slurm_fairshare.errors import SlurmUnreadable
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.slurm.times import seconds

UNSET = (0, 4_294_967_295, 4_294_967_294)
"""slurmctld shows 0 where no level has a value (older ones INFINITE or NO_VAL). A 0 somebody set does the same."""

QOS_FIELDS = ("Name", "Priority", "GraceTime", "PreemptExemptTime", "Preempt", "Flags", "MaxTRES", "MaxTRESPA")
ACCESS_FIELDS = ("ID", "Account", "User", "QOS", "DefaultQOS")

_ASSOCIATION = re.compile(
    r"ClusterName=(?P<cluster>\S*) Account=(?P<account>\S*) UserName=(?P<user>\S*?)(?:\(\d+\))? "
    r"Partition=(?P<partition>\S*) Priority=(?P<priority>\d+) ID=(?P<id>\d+) "
)
_QOS = re.compile(
    r"QOS=(?P<name>.+?)\((?P<id>\d+)\) .*?MaxTRESPJ=(?P<per_job>\S*) .*?PreemptMode=\S* +Priority=(?P<priority>\w+)"
)


class Memo(Protocol):
    """A place for one text that outlives the process, such as a row in the store."""

    def get(self) -> str | None: ...

    def put(self, text: str) -> None: ...


class ProcessMemo:
    """Remembers as long as the process lives: enough for the daemon."""

    def __init__(self) -> None:
        self._text: str | None = None

    def get(self) -> str | None:
        return self._text

    def put(self, text: str) -> None:
        self._text = text


@dataclass(frozen=True, slots=True)
class Loaded:
    """One association as slurmctld holds it, with the number that names it in slurmdbd."""

    number: str
    account: str
    user: str
    partition: str
    priority: int | None


@dataclass(frozen=True, slots=True)
class InMemory:
    """What slurmctld holds: associations, and each QOS's name and priority."""

    associations: tuple[Loaded, ...]
    qos: Mapping[str, int]
    fingerprint: str


@dataclass(frozen=True, slots=True)
class InDatabase:
    """What only slurmdbd tells: each QOS, and by association the QOS it may use and its default."""

    qos: Mapping[str, Qos]
    access: Mapping[str, tuple[frozenset[str], str]]


def parse_assoc_mgr(text: str) -> InMemory:
    """Read `scontrol -o show assoc_mgr flags=assoc,qos`. Raises SlurmUnreadable, also where it holds nothing."""
    associations: list[Loaded] = []
    qos: dict[str, int] = {}
    marks: list[str] = []
    for line in text.split("\n"):
        if line.startswith("ClusterName="):
            found = _match(_ASSOCIATION, line)
            number, account, user, part = (found[name] for name in ("id", "account", "user", "partition"))
            associations.append(Loaded(number, account, user, part, _priority(found["priority"])))
            marks.append(f"{number} {account} {user} {part}")
        elif line.startswith("QOS="):
            found = _match(_QOS, line)
            qos[found["name"]] = _priority(found["priority"]) or 0
            marks.append(f"{found['name']} {found['id']} {found['priority']} {found['per_job']}")
    if not associations or not qos:
        raise SlurmUnreadable(
            "slurmctld holds no associations or no QOS: it has not reached slurmdbd yet, or this user may not see "
            "them (PrivateData in slurm.conf; it needs AdminLevel Operator)"
        )
    digest = hashlib.sha256("\n".join(sorted(marks)).encode()).hexdigest()
    return InMemory(tuple(associations), qos, digest)


def _match(pattern: re.Pattern[str], line: str) -> dict[str, str]:
    found = pattern.match(line)
    if found is None:
        raise SlurmUnreadable(f'scontrol show assoc_mgr printed a line that is not understood: "{line[:300]}"')
    return found.groupdict()


def _priority(text: str) -> int | None:
    if not text.isdigit() or int(text) in UNSET:
        return None
    return int(text)


def parse_qos(text: str) -> dict[str, Qos]:
    """Read `sacctmgr -nP show qos` with QOS_FIELDS. A time that is not set counts as 0: it protects nobody."""
    found = {}
    for row in _columns(text, QOS_FIELDS, "qos"):
        try:
            found[row["Name"]] = Qos(
                name=row["Name"],
                priority=_priority(row["Priority"] or "0") or 0,
                grace=seconds(row["GraceTime"] or "0:00"),
                exempt=seconds(row["PreemptExemptTime"] or "0:00"),
                preempts=_names(row["Preempt"]),
                flags=_names(row["Flags"]),
                max_tres_per_job=row["MaxTRES"],
                max_tres_per_account=row["MaxTRESPA"],
            )
        except ValueError as error:
            raise SlurmUnreadable(f"sacctmgr show qos printed {row}, which is not understood: {error}") from error
    return found


def parse_access(text: str) -> dict[str, tuple[frozenset[str], str]]:
    """Read `sacctmgr -nP show assoc` with ACCESS_FIELDS: by number, the QOS allowed and the default."""
    rows = _columns(text, ACCESS_FIELDS, "assoc")
    return {row["ID"]: (_names(row["QOS"]), row["DefaultQOS"]) for row in rows}


def _columns(text: str, fields: tuple[str, ...], what: str) -> list[dict[str, str]]:
    rows = []
    for line in filter(None, text.split("\n")):
        values = line.split("|")
        if len(values) != len(fields):
            raise SlurmUnreadable(f'sacctmgr show {what} printed a line that is not understood: "{line[:300]}"')
        rows.append(dict(zip(fields, values, strict=True)))
    return rows


def _names(text: str) -> frozenset[str]:
    return frozenset(name for name in text.split(",") if name)


def held_of(memory: InMemory, database: InDatabase) -> Held:
    """Both together. Priorities as slurmctld holds them; a QOS or access it does not know yet is not there."""
    nothing: tuple[frozenset[str], str] = (frozenset(), "")
    return Held(
        qos={name: qos for name, qos in database.qos.items() if name in memory.qos},
        associations=tuple(
            Association(
                account=one.account,
                user=one.user,
                priority=one.priority,
                qos=database.access.get(one.number, nothing)[0],
                default_qos=database.access.get(one.number, nothing)[1],
            )
            for one in memory.associations
        ),
    )


@dataclass(slots=True)
class SettingsReader:
    """Reads what Slurm holds, with one call to slurmctld while nothing else has changed."""

    runner: Runner
    cluster: str
    memo: Memo
    max_age: timedelta = timedelta(hours=1)

    def held(self, now: datetime, refresh: bool = False) -> Held:
        memory = parse_assoc_mgr(self.runner.read("scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos").stdout)
        database = None if refresh else self._remembered(memory.fingerprint, now)
        if database is None:
            database = self._ask()
            self.memo.put(_dump(database, memory.fingerprint, now))
        return held_of(memory, database)

    def forget(self) -> None:
        """Ask slurmdbd again next time: something was changed."""
        self.memo.put("")

    def _ask(self) -> InDatabase:
        show = ("-n", "-P", "show")
        qos = self.runner.read("sacctmgr", *show, "qos", f"format={','.join(QOS_FIELDS)}")
        access = self.runner.read(
            "sacctmgr", *show, "assoc", f"cluster={self.cluster}", f"format={','.join(ACCESS_FIELDS)}"
        )
        return InDatabase(parse_qos(qos.stdout), parse_access(access.stdout))

    def _remembered(self, fingerprint: str, now: datetime) -> InDatabase | None:
        """None where there is nothing, it is of another state or age, or another version wrote it."""
        try:
            held = json.loads(self.memo.get() or "{}")
            fresh = timedelta(0) <= now - datetime.fromisoformat(held["read"]) < self.max_age
            return _load(held) if held["fingerprint"] == fingerprint and fresh else None
        except (ValueError, KeyError, TypeError, AttributeError):
            return None


def _dump(database: InDatabase, fingerprint: str, now: datetime) -> str:
    qos = [
        [q.name, q.priority, q.grace, q.exempt, sorted(q.preempts), sorted(q.flags), q.max_tres_per_job,
         q.max_tres_per_account]
        for q in database.qos.values()
    ]  # fmt: skip
    access = {number: [sorted(names), default] for number, (names, default) in database.access.items()}
    return json.dumps({"fingerprint": fingerprint, "read": now.isoformat(), "qos": qos, "access": access})


def _load(held: dict[str, object]) -> InDatabase:
    qos, access = held["qos"], held["access"]
    if not isinstance(qos, list) or not isinstance(access, dict):
        raise TypeError("not what this version wrote")
    read = [Qos(n, p, g, e, frozenset(pre), frozenset(f), pj, pa) for n, p, g, e, pre, f, pj, pa in qos]
    return InDatabase(
        {one.name: one for one in read},
        {number: (frozenset(names), default) for number, (names, default) in access.items()},
    )
