"""The only place that knows Postgres: the ledger, the budgets and the journal, and a twin of them in memory."""
