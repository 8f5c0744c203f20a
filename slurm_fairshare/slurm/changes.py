"""Changes of QOS and associations, as words for sacctmgr.

Priorities, which every tick may change, go through one process: it reads the commands from standard input. sacctmgr
goes on there after one that failed, so only what may be done in any order goes that way. Everything else is one
process for one change: a plan must stop at its first failure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slurm_fairshare.core.plan import (
    AddQos,
    Allow,
    Change,
    ClearUserPriority,
    Disallow,
    Held,
    Qos,
    RemoveQos,
    SetPriority,
    SetQos,
    SetUserPriority,
    Unbook,
)
from slurm_fairshare.errors import SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm.run import Answer, Runner, error_of
from slurm_fairshare.slurm.times import clock
from slurm_fairshare.slurm.tres import pairs

OPERATOR = "Operator"
ADMINISTRATOR = "Administrator"

UNCHANGED = re.compile(
    r"nothing modified|nothing new added|nothing deleted|already exists"
    r"|data has not changed since time specified|request didn't affect anything",
    re.IGNORECASE,
)
"""Said where everything was as wanted. Exit code 1 with them is no failure."""

_MODIFIED = re.compile(r"^ ?Modified ", re.MULTILINE)
_SAME = re.compile(r"nothing modified|data has not changed since time specified", re.IGNORECASE)
"""Each said once for a command that was carried out."""

MOST_COMMANDS = 200
"""Commands of one process: at about 50 ms each they stay well within the time a tool may take."""

LONGEST_LINE = 3000

_UNSAFE = re.compile(r"""[\s'"`\\,=\[\]|;<>(){}$&]|[^ -~]""")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Command:
    """The words behind `sacctmgr -i`, and the AdminLevel they take."""

    words: Words
    level: str


LABELS = (SetPriority, ClearUserPriority, SetUserPriority)
"""Changes that are many, small and safe in any order among themselves."""


def commands(change: Change, cluster: str, held: Held) -> list[Command]:
    """What carries a change out. `held` says which default QOS are ours to take away again."""
    where = (f"cluster={safe(cluster)}",)
    match change:
        case AddQos(name):
            return [Command(("add", "qos", safe(name)), ADMINISTRATOR)]
        case SetQos(qos, before):
            values = _values(qos, before)
            modify = ("modify", "qos", "where", f"name={safe(qos.name)}", "set", *values)
            return [Command(modify, ADMINISTRATOR)] if values else []
        case Allow(accounts, qos_names, default):
            granted = (f"qos+={joined(qos_names)}", f"DefaultQOS={safe(default)}")
            return _modify_accounts(accounts, where, granted)
        case SetPriority(accounts, priority):
            return _modify_accounts(accounts, where, (f"Priority={priority:d}",))
        case ClearUserPriority(account, user):
            one = (f"name={safe(user)}", f"account={safe(account)}", *where)
            return [Command(("modify", "user", "where", *one, "set", "Priority=-1"), OPERATOR)]
        case SetUserPriority(account, user, priority):
            one = (f"name={safe(user)}", f"account={safe(account)}", *where)
            return [Command(("modify", "user", "where", *one, "set", f"Priority={priority:d}"), OPERATOR)]
        case Disallow(accounts, qos_names, label):
            return _disallow(accounts, qos_names, label, where, held)
        case Unbook():
            return []  # a reservation is slurmctld's, not accounting's
        case RemoveQos(name):
            return [Command(("remove", "qos", "where", f"name={safe(name)}"), ADMINISTRATOR)]


def _disallow(accounts: Iterable[str], names: Words, label: bool, where: Words, held: Held) -> list[Command]:
    """A default QOS that is none of ours was set by somebody else and stays."""
    taken = (*((f"qos-={joined(names)}",) if names else ()), *(("Priority=-1",) if label else ()))
    ours: list[str] = []
    theirs: list[str] = []
    for account in accounts:
        has = held.account(account)
        (ours if has is not None and has.default_qos in names else theirs).append(account)
    return [
        *_modify_accounts(ours, where, ("DefaultQOS=-1", *taken)),
        *_modify_accounts(theirs, where, taken),
    ]


def _modify_accounts(accounts: Iterable[str], where: Words, values: Words) -> list[Command]:
    names = tuple(accounts)
    if not names:
        return []
    return [Command(("modify", "account", "where", f"name={joined(names)}", *where, "set", *values), OPERATOR)]


def _values(qos: Qos, before: Qos | None) -> Words:
    """Only what differs; of a new QOS everything that matters, since a fresh one has neither time set."""
    old = before or Qos(qos.name, grace=-1, exempt=-1, priority=-1)
    found: list[str] = []
    if qos.priority != old.priority:
        found.append(f"Priority={qos.priority:d}")
    if qos.grace != old.grace:
        found.append(f"GraceTime={qos.grace:d}")
    if qos.exempt != old.exempt:
        found.append(f"PreemptExemptTime={clock(qos.exempt)}")
    # `Preempt=` with nothing behind it left a QOS unable to be preempted before 24.05.4: names are taken singly.
    if qos.preempts - old.preempts:
        found.append(f"Preempt+={joined(sorted(qos.preempts - old.preempts))}")
    if old.preempts - qos.preempts:
        found.append(f"Preempt-={joined(sorted(old.preempts - qos.preempts))}")
    if qos.flags != old.flags:
        found.append(f"Flags={joined(sorted(qos.flags)) if qos.flags else '-1'}")
    found += _limit("MaxTRESPerJob", qos.max_tres_per_job, old.max_tres_per_job)
    found += _limit("MaxTRESPerAccount", qos.max_tres_per_account, old.max_tres_per_account)
    return tuple(found)


def _limit(name: str, wanted: str, was: str) -> list[str]:
    """A limit is kept by TRES: one that is not named stays, and -1 takes it away."""
    now, old = _tres(wanted), _tres(was)
    new = {**{tres: "-1" for tres in old if tres not in now}, **{t: v for t, v in now.items() if old.get(t) != v}}
    return [f"{name}={','.join(f'{tres}={amount}' for tres, amount in sorted(new.items()))}"] if new else []


def _tres(text: str) -> Mapping[str, str]:
    try:
        return pairs(text)
    except ValueError as error:
        raise SlurmRefused(f"{error}: write a limit as gres/gpu=8") from error


def safe(name: str) -> str:
    """A name as sacctmgr takes it, or a refusal that says which character stands in the way.

    sacctmgr splits what it reads at commas, quotes, brackets and signs, so those would name something else.
    """
    bad = _UNSAFE.search(name)
    if not name:
        raise SlurmRefused("a name for sacctmgr is empty: give the account, user or QOS a name")
    if bad is not None or name[0] in "+-":
        sign = bad.group() if bad is not None else name[0]
        raise SlurmRefused(
            f"the name {name!r} cannot be given to sacctmgr because of {sign!r}: "
            "use letters, digits and @ . _ / % # : ~ ^ * ! ? with + and - inside"
        )
    return name


def joined(names: Iterable[str]) -> str:
    return ",".join(safe(name) for name in names)


def batches(todo: Iterable[tuple[Change, Sequence[Command]]]) -> Iterator[list[Command]]:
    """The commands in their order, those that may share a process together."""
    batch: list[Command] = []
    for change, some in todo:
        for command in some:
            free = isinstance(change, LABELS) and len(" ".join(command.words)) < LONGEST_LINE
            if batch and (not free or len(batch) == MOST_COMMANDS):
                yield batch
                batch = []
            batch.append(command)
            if not free:
                yield batch
                batch = []
    if batch:
        yield batch


def carry_out(runner: Runner, batch: Sequence[Command]) -> None:
    """Raises at once if it fails; -i, since nobody answers a question here."""
    if len(batch) > 1 and _together(runner, batch):
        return
    for command in batch:
        runner.write("sacctmgr", "-i", *command.words, level=command.level, unchanged=UNCHANGED)


def _together(runner: Runner, batch: Sequence[Command]) -> bool:
    """All of them in one process. False where it read nothing: not every command prefix passes standard input on."""
    lines = "".join(f"{' '.join(command.words)}\n" for command in batch)
    answer = runner.ask("sacctmgr", "-i", stdin=lines)
    said = f"{answer.stdout}\n{answer.stderr}"
    done, same = len(_MODIFIED.findall(said)), len(_SAME.findall(said))
    wrong = [line for line in answer.stderr.split("\n") if line.strip() and not UNCHANGED.search(line)]
    if answer.code == 0 and not done + same:
        return False
    if answer.code != 0 and (wrong or not same):
        raise error_of("sacctmgr", Answer(answer.code, answer.stdout, "\n".join(wrong)), "-i", batch[0].level)
    if done + same < len(batch):
        raise SlurmUnreadable(
            f"sacctmgr was given {len(batch)} changes of priority and answered {done + same} of them: "
            f'"{answer.words}"; the next tick looks again at what Slurm holds'
        )
    return True
