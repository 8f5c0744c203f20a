"""Accounts and users: is every leaf's account in Slurm, may its users use the ladder, does nobody jump the order."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_fairshare.core.doctor.facts import Facts, Source
from slurm_fairshare.core.doctor.finding import ADVICE, ERROR, WARNING, Checks, Fault, shell, some
from slurm_fairshare.core.plan import Association
from slurm_fairshare.core.tree import account_key

CHECKS = Checks("Accounts and users")
check = CHECKS.check


def _accounts(facts: Facts) -> dict[str, Association]:
    """Accounts of the tree that Slurm knows, by key."""
    held = {account_key(one.account): one for one in facts.held.associations if not one.user}
    return {key: held[key] for key in sorted(facts.tree.by_account) if key in held}


@check(
    "tree-empty",
    WARNING,
    "Is there a budget tree?",
    "Without one nobody is owed anything: all jobs rank alike.",
    Source.TREE,
)
def _tree_empty(facts: Facts) -> Iterable[Fault]:
    if not facts.tree.leaves:
        yield Fault("No budget tree is in force.", shell("slurm-fairshare budget load FILE"))


@check(
    "account-unknown",
    WARNING,
    "Does Slurm know the account of every leaf?",
    "Nobody can submit under it, and its share of the cluster goes to nobody.",
    Source.TREE,
    Source.HELD,
)
def _unknown(facts: Facts) -> Iterable[Fault]:
    known = _accounts(facts)
    lacks = [leaf.account for leaf in facts.tree.leaves if leaf.account and account_key(leaf.account) not in known]
    if lacks:
        lines = "\n".join(f"sacctmgr add account {name}" for name in lacks[:8])
        yield Fault(f"In the budget tree but unknown to Slurm: {some(lacks)}.", shell(lines))


@check(
    "account-unbudgeted",
    ADVICE,
    "Is every account with users bound to a leaf?",
    "Jobs of an account in nobody's budget rank behind all others and are never under contract.",
    Source.TREE,
    Source.HELD,
)
def _unbudgeted(facts: Facts) -> Iterable[Fault]:
    bound = {*facts.tree.by_account, "root"}
    staff = {account_key(one.account) for one in facts.held.associations if one.user in facts.wanted.trusted_users}
    found = sorted({account_key(one.account) for one in facts.held.associations if one.user} - bound - staff)
    if found and facts.tree.leaves:
        yield Fault(f"In Slurm but in nobody's budget: {some(found)}.", shell("slurm-fairshare budget load FILE"))


@check(
    "account-empty",
    ADVICE,
    "Has every account of the tree a user?",
    "Its share of the cluster is owed to nobody who could ask for it.",
    Source.TREE,
    Source.HELD,
)
def _no_users(facts: Facts) -> Iterable[Fault]:
    peopled = {account_key(one.account) for one in facts.held.associations if one.user}
    found = [account for account in _accounts(facts) if account not in peopled]
    if found:
        line = shell(f"sacctmgr add user NAME account={found[0]}")
        yield Fault(f"Accounts of the tree without a user: {some(found)}.", line)


@check(
    "access",
    ERROR,
    "May every account of the tree use every rung?",
    "A job whose rung its account may not use is refused at submit.",
    Source.TREE,
    Source.HELD,
)
def _access(facts: Facts) -> Iterable[Fault]:
    rungs = {rung.name for rung in facts.wanted.ladder.rungs}
    lacks = [account for account, has in _accounts(facts).items() if not has.qos >= rungs]
    if lacks:
        yield Fault(f"Accounts that may not use every rung: {some(lacks)}.", shell("slurm-fairshare apply"))


@check(
    "default-qos",
    WARNING,
    "Is unallocated the default QOS of every account of the tree?",
    "A job that names no QOS where the plugin does not see it (another partition, an exempt account) starts in the "
    "account's default: in a charged rung it would be paid for, in another QOS it would never yield.",
    Source.TREE,
    Source.HELD,
)
def _default_qos(facts: Facts) -> Iterable[Fault]:
    below = facts.wanted.ladder.unallocated.name
    found = [account for account, has in _accounts(facts).items() if has.default_qos != below]
    if found:
        shown = some(f"{name} ({_accounts(facts)[name].default_qos or 'none'})" for name in found)
        yield Fault(f"Accounts with another default QOS: {shown}.", shell("slurm-fairshare apply"))


@check(
    "user-access",
    ERROR,
    "May every user use the rungs of their account?",
    "A user's own list of QOS goes before the account's: their jobs are refused though the team has a budget.",
    Source.TREE,
    Source.HELD,
)
def _user_access(facts: Facts) -> Iterable[Fault]:
    accounts = _accounts(facts)
    rungs = {rung.name for rung in facts.wanted.ladder.rungs}
    for one in facts.held.associations:
        account = accounts.get(account_key(one.account)) if one.user else None
        lacks = sorted((rungs & account.qos) - one.qos) if account is not None else []
        if lacks:
            yield Fault(
                f"User {one.user} in account {one.account} may not use {some(lacks)}, which the account may.",
                shell(f"sacctmgr modify user where name={one.user} account={one.account} set qos+={','.join(lacks)}"),
                subject=f"user {one.user}",
            )


@check(
    "user-priority",
    WARNING,
    "Has no user a Priority of their own?",
    "It goes before the account's: this user's jobs stand where no budget put them, until the next tick clears it.",
    Source.TREE,
    Source.HELD,
)
def _user_priority(facts: Facts) -> Iterable[Fault]:
    accounts = _accounts(facts)
    for one in facts.held.associations:
        account = accounts.get(account_key(one.account)) if one.user else None
        if account is not None and one.priority != account.priority:
            where = f"name={one.user} account={one.account}"
            yield Fault(
                f"User {one.user} in account {one.account} has Priority {one.priority or 0}, the account "
                f"{account.priority or 0}.",
                shell(f"sacctmgr modify user where {where} set Priority=-1"),
                subject=f"user {one.user}",
            )


@check(
    "foreign-priority",
    WARNING,
    "Does no account outside the tree have a Priority that reaches the teams'?",
    "Its jobs stand before teams that are owed GPUs. Accounts inherit their parent's Priority.",
    Source.TREE,
    Source.HELD,
)
def _foreign_priority(facts: Facts) -> Iterable[Fault]:
    labels = [has.priority for has in _accounts(facts).values() if has.priority]
    for one in facts.held.associations:
        if one.user or account_key(one.account) in facts.tree.by_account or not labels:
            continue
        if one.priority is not None and one.priority >= min(labels):
            yield Fault(
                f"Account {one.account} is in nobody's budget and has Priority {one.priority}.",
                shell(f"sacctmgr modify account where name={one.account} set Priority=-1"),
                subject=f"account {one.account}",
            )


@check(
    "user-without-uid",
    WARNING,
    "Does slurmctld know the uid of every user with an association?",
    "It looked the user up before the account existed on its host and remembers that there is none: all jobs of this "
    "user are refused.",
    Source.USERS,
)
def _no_uid(facts: Facts) -> Iterable[Fault]:
    found = sorted(name for name, known in facts.users.items() if not known)
    if found:
        line = shell(f"getent passwd {found[0]} && scontrol reconfigure    # on the controller")
        yield Fault(f"Users whose uid slurmctld does not know: {some(found)}.", line)
