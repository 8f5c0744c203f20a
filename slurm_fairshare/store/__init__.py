"""The only place that knows Postgres: the ledger, the budgets and the journal, and a twin of them in memory."""

from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.schema import current, upgrade

__all__ = ["MemoryStore", "PostgresStore", "current", "upgrade"]
