"""Users inside an account: who used less of it goes before who used more. A setting, off by default.

It orders jobs inside one team's band only: an account's own standing decides against every other account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from slurm_fairshare.core.tree import account_key

UserUsage = Mapping[tuple[str, str], float]
"""Charged GPU-seconds in the window, weighted, by account (lower-case key) and user."""


def user_order(account: str, users: Iterable[str], used: UserUsage) -> list[str]:
    """The users of an account, who used least first, ties by name.

    >>> user_order("NLP", ["dan", "erin", "bob"], {("nlp", "dan"): 5.0, ("nlp", "erin"): 2.0, ("x", "bob"): 9.0})
    ['bob', 'erin', 'dan']
    """
    key = account_key(account)
    return sorted(set(users), key=lambda user: (used.get((key, user), 0.0), user))
