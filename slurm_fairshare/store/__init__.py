"""The only place that knows Postgres: tables, queries, migrations (their home is sql/)."""
