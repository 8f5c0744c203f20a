"""The store of the product: one Postgres database, one cluster."""

from __future__ import annotations

from datetime import timedelta
from types import TracebackType
from typing import Self

from slurm_fairshare.core.contract import Ladder
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.store.breakdown import BreakdownStore
from slurm_fairshare.store.budgets import BudgetStore
from slurm_fairshare.store.connection import APPLICATION, STATEMENT_TIMEOUT, Database
from slurm_fairshare.store.history import HistoryStore
from slurm_fairshare.store.journal import JournalStore
from slurm_fairshare.store.ledger import LedgerStore
from slurm_fairshare.store.tallies import TallyStore


class PostgresStore(LedgerStore, BudgetStore, JournalStore, HistoryStore, BreakdownStore, TallyStore):
    """Implements the Store port. Safe to share between threads. Nothing is opened before it is used.

    `rule` and `ladder` are the site's: they value the capacity, and what the queue shows before accounting does.
    """

    def __init__(
        self,
        dsn: str,
        cluster: str,
        rule: ChargeRule | None = None,
        ladder: Ladder | None = None,
        *,
        application: str = APPLICATION,
        statement_timeout: timedelta | None = STATEMENT_TIMEOUT,
    ) -> None:
        database = Database(dsn, application=application, statement_timeout=statement_timeout)
        LedgerStore.__init__(self, database, cluster, rule or ChargeRule(), ladder or Ladder.default())
        BudgetStore.__init__(self, database, cluster)
        JournalStore.__init__(self, database, cluster)
        HistoryStore.__init__(self, database, cluster)
        TallyStore.__init__(self, database, cluster)
        BreakdownStore.__init__(self, database, cluster)

    def close(self) -> None:
        """Close the connections; the store can still be used and opens new ones."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
