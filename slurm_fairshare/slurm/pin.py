"""The contract a job was accepted with, wherever it can still be found."""

from __future__ import annotations

from slurm_fairshare.core.contract import Contract, Ladder, read_pinned
from slurm_fairshare.errors import ContractError


def contract_of(admin_comment: str, qos: str, ladder: Ladder) -> tuple[Contract | None, str]:
    """The pinned contract, and what is odd about it ("" for nothing).

    Without a pin (accounting gets it only when the run ends; a job may be older than the plugin) the job's
    rung says what is protected: never less than was promised, since the plugin rounds up to a rung. The same
    for a pin that is damaged: doubt protects. Outside the ladder nothing was promised: None.
    """
    odd = ""
    try:
        pinned = read_pinned("" if admin_comment == "(null)" else admin_comment)
    except ContractError as error:
        pinned, odd = None, str(error)
    if pinned is not None:
        return pinned, ""
    rung = ladder.rung(qos)
    return (Contract(rung.min_runtime) if rung is not None else None), odd
