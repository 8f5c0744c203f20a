"""Every error a user can meet. The message says what is wrong and what to do about it."""

from __future__ import annotations


class FairshareError(Exception):
    """Base of all errors this product raises on purpose. `exit_code` is what a command ends with."""

    exit_code = 1


class ConfigError(FairshareError):
    """A setting is missing, unknown or makes no sense."""

    exit_code = 2


class BudgetError(FairshareError):
    """A budget tree or an edit of it cannot be accepted."""

    exit_code = 2


class ContractError(FairshareError):
    """A job's declared contract cannot be read or is not allowed. Says what to write instead."""

    exit_code = 2


class SlurmError(FairshareError):
    """Slurm could not be read or did not do what it was asked."""


class SlurmUnreachable(SlurmError):
    """A Slurm daemon did not answer in time, or the tool that asks it could not be run."""


class SlurmRefused(SlurmError):
    """Slurm answered and said no (permission, unknown name, invalid value)."""


class DateRangeRefused(SlurmRefused):
    """slurmdbd answers no question about so long a stretch; a shorter one may pass."""


class SlurmUnreadable(SlurmError):
    """Slurm answered something that is not understood; nothing may be concluded from it."""


class GpusNotTracked(SlurmUnreadable):
    """The nodes have GPUs and Slurm does not count them; no usage, no capacity and no share can be known."""


class StoreError(FairshareError):
    """Postgres could not be read or written."""


class StoreUnreachable(StoreError):
    """Postgres does not answer, or refuses the connection."""


class StoreDenied(StoreError):
    """Postgres answered that this role may not see or do that."""


class StaleData(FairshareError):
    """The data a decision would stand on is too old; nothing is pushed and nobody is stopped on it."""


class ClockSkew(FairshareError):
    """This host's clock and slurmctld's differ; nothing is computed, pushed or stopped by a clock that may be wrong."""


class NotLeading(FairshareError):
    """Another daemon leads this cluster, or this one led it and lost the leadership."""
