"""TRES text, as Slurm prints it: `billing=8,cpu=8,gres/gpu:a100=2,gres/gpu=2,mem=65536M,node=1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

from slurm_fairshare.core.resources import UNTYPED, Resources

GPU = "gres/gpu"
_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)", re.IGNORECASE)
_MEGABYTES = {
    "K": Decimal(1) / 1024,
    "": Decimal(1),
    "M": Decimal(1),
    "G": Decimal(1024),
    "T": Decimal(1024**2),
    "P": Decimal(1024**3),
    "E": Decimal(1024**4),
}
MOST = 2**31 - 1
MOST_MEMORY = 2**53
NOTHING = frozenset({"", "(null)", "N/A", "None"})


def pairs(text: str) -> dict[str, str]:
    """Name to amount, both as text. Raises ValueError for text that is no list of pairs, or names one twice.

    >>> pairs("cpu=8,gres/gpu:1g.10gb=2")
    {'cpu': '8', 'gres/gpu:1g.10gb': '2'}
    """
    found: dict[str, str] = {}
    if text.strip() in NOTHING:
        return found
    for part in text.strip().split(","):
        name, equals, amount = part.partition("=")
        if not equals or not name or not amount or name in found:
            raise ValueError(f'TRES "{text[:200]}" cannot be read at "{part}"')
        found[name] = amount
    return found


def resources(text: str) -> tuple[Resources, str]:
    """What a TRES text amounts to, and what is odd about it ("" for nothing).

    `gres/gpu` counts all GPUs and `gres/gpu:<type>` counts some of them again: never the sum of both. GPUs in
    excess of the typed ones have no known type. Where the types add up to more than the whole, the whole holds.
    gres/gpumem, gres/gpuutil, gres/shard and gres/mps are no GPUs.
    """
    amounts = pairs(text)
    gpus, odd = _gpus(amounts)
    return Resources(gpus, _count("cpu", amounts.get("cpu", "0")), _megabytes(amounts.get("mem", "0"))), odd


def _gpus(amounts: Mapping[str, str]) -> tuple[dict[str, int], str]:
    typed = {
        name[len(GPU) + 1 :]: _count(name, amount) for name, amount in amounts.items() if name.startswith(f"{GPU}:")
    }
    if GPU not in amounts:
        return _present(typed), ""
    rest = _count(GPU, amounts[GPU]) - sum(typed.values())
    if rest < 0:
        return _present({UNTYPED: _count(GPU, amounts[GPU])}), "GPUs by type add up to more than gres/gpu"
    return _present({**typed, UNTYPED: rest}), ""


def _present(gpus: Mapping[str, int]) -> dict[str, int]:
    return {kind: gpus[kind] for kind in sorted(gpus) if gpus[kind]}


def _count(name: str, amount: str) -> int:
    """Slurm's own signs for "no value" and "infinite" are numbers, larger than any count there can be."""
    if not amount.isascii() or not amount.isdigit() or int(amount) > MOST:
        raise ValueError(f'TRES {name} has "{amount}", which is no count')
    return int(amount)


def _megabytes(amount: str) -> int:
    """Slurm's memory: megabytes unless a unit stands behind, with a fraction where it shortened the number.

    >>> _megabytes("65536M"), _megabytes("125G"), _megabytes("1.5T"), _megabytes("4000")
    (65536, 128000, 1572864, 4000)
    """
    match = _AMOUNT.fullmatch(amount)
    if match is None:
        raise ValueError(f'TRES mem has "{amount}", which is no amount of memory')
    number, unit = match.groups()
    megabytes = int(Decimal(number) * _MEGABYTES[unit.upper()])
    if megabytes > MOST_MEMORY:
        raise ValueError(f'TRES mem has "{amount}", which is no amount of memory')
    return megabytes
