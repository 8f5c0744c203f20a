"""Pure reports: rows in, a table, parsable lines, JSON or CSV out."""
