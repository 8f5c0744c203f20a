"""Random association trees with usage, brought onto a real cluster all at once.

`sacctmgr load` makes 2,000 associations in a few seconds. Usage comes from where slurmctld itself keeps it: it
writes `assoc_usage` when it stops and reads it when it starts, so between the two each user's usage is put in.
"""

from __future__ import annotations

import random
import struct
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.cluster import Cluster

STATE = "/var/lib/slurm/slurmctld/assoc_usage"
SHARES = (0, 1, 1, 2, 3, 5, 10)
# A tie is made of equal shares and equal usage. Unequal ones of an equal quotient (2/4 and 1/2) would hang on the
# rounding of Slurm's long doubles, so usage that is meant to tie is another large prime for each number of shares.
TIED_USAGE = {0: 15_485_863, 1: 32_452_843, 2: 49_979_687, 3: 67_867_967, 5: 86_028_121, 10: 104_395_301}
PEOPLE = tuple(f"u{number:02d}" for number in range(12))


@dataclass
class Forest:
    """`lines` is what `sacctmgr load` reads, `usage` the usage of each user's association; trees by their name."""

    trees: list[str] = field(default_factory=list)
    lines: dict[str, list[str]] = field(default_factory=dict)
    usage: dict[tuple[str, str], int] = field(default_factory=dict)

    def text(self, cluster: str) -> str:
        blocks = "".join(f"Parent - '{parent}'\n" + "".join(inside) for parent, inside in self.lines.items())
        return f"Cluster - '{cluster}':Fairshare=1:QOS='normal'\n{blocks}"


def draw(count: int, seed: int) -> Forest:
    """`count` trees side by side below the root: accounts down to three levels, users at each."""
    dice = random.Random(seed)  # the same trees every time
    forest = Forest(lines={"root": []})
    for number in range(count):
        name = f"t{number:03d}"
        forest.trees.append(name)
        _account(forest, dice, "root", name, depth=0, used=dice.random() < 0.9)
    return forest


def _account(forest: Forest, dice: random.Random, parent: str, name: str, depth: int, used: bool) -> None:
    shares = "parent" if dice.random() < 0.12 else str(dice.choice(SHARES))
    forest.lines[parent].append(f"Account - '{name}':Description='x':Organization='x':Fairshare={shares}\n")
    forest.lines[name] = []
    below = dice.randint(0, 3) if depth < 2 else 0
    for number in range(below):
        _account(forest, dice, name, f"{name}{chr(97 + number)}", depth + 1, used and dice.random() < 0.85)
    for user in dice.sample(PEOPLE, dice.randint(0 if below else 1, 4)):
        _user(forest, dice, name, user, used)


def _user(forest: Forest, dice: random.Random, account: str, user: str, used: bool) -> None:
    shares = None if dice.random() < 0.15 else dice.choice(SHARES)
    said = "parent" if shares is None else str(shares)
    forest.lines[account].append(f"User - '{user}':DefaultAccount='{account}':Fairshare={said}\n")
    kind = dice.random()
    if not used or kind < 0.25:
        amount = 0
    elif kind < 0.6:
        amount = TIED_USAGE[shares or 0]
    else:
        amount = dice.randint(1, 10**9)
    forest.usage[account, user] = amount


def plant(cluster: Cluster, forest: Forest, folder: Path) -> None:
    """Make the associations, then let slurmctld start with the usage."""
    file = folder / "forest.cfg"
    file.write_text(forest.text("lab"))
    _docker("cp", str(file), f"{cluster.container('slurmctld')}:/tmp/forest.cfg")
    cluster.sacctmgr("load", "file=/tmp/forest.cfg")
    wanted = _by_number(cluster, forest.usage)
    # slurmctld is told by slurmdbd, a moment after sacctmgr is done
    cluster.wait(lambda: _loaded(cluster), 30, "slurmctld to hold the trees", until=lambda n: n >= len(wanted))
    cluster.stop("slurmctld")
    state = folder / "assoc_usage"
    _docker("cp", f"{cluster.container('slurmctld')}:{STATE}", str(state))
    state.write_bytes(with_usage(state.read_bytes(), wanted))
    state.chmod(0o644)  # it comes out as slurm's alone and goes in as root's
    _docker("cp", str(state), f"{cluster.container('slurmctld')}:{STATE}")
    cluster.start("slurmctld")


def _loaded(cluster: Cluster) -> int:
    lines = cluster.slurm_output("sshare", "-a", "-P", "-n", "-o", "Account,User").splitlines()
    return sum(1 for line in lines if line.strip().startswith("t") and not line.endswith("|"))


def _by_number(cluster: Cluster, usage: Mapping[tuple[str, str], int]) -> dict[int, int]:
    rows = cluster.slurm_output("sacctmgr", "-nP", "show", "assoc", "format=ID,Account,User").splitlines()
    found = (row.split("|") for row in rows)
    return {int(number): usage[account, user] for number, account, user in found if (account, user) in usage}


def with_usage(state: bytes, usage: Mapping[int, int]) -> bytes:
    """slurmctld's file with other usage: release and time, then for each user's association its number, its usage as
    text, its usage by TRES as text, and its wall time. Fails where it is not made so."""
    out, place, missing = [state[:10]], 10, set(usage)
    while place < len(state):
        (number,) = struct.unpack_from(">I", state, place)
        old, place = _text(state, place + 4)
        by_tres, place = _text(state, place)
        wall, place = state[place : place + 4], place + 4
        float(old.rstrip(b"\0"))
        new = b"%d.000000\0" % usage.get(number, 0)
        missing.discard(number)
        out.append(struct.pack(">I", number) + _packed(new) + _packed(by_tres) + wall)
    assert not missing, f"{len(missing)} associations are not in slurmctld's state"
    return b"".join(out)


def _text(state: bytes, place: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(">I", state, place)
    return state[place + 4 : place + 4 + length], place + 4 + length


def _packed(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _docker(*words: str) -> None:
    subprocess.run(["docker", *words], check=True, capture_output=True)
