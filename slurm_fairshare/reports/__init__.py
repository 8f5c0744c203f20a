"""Reports: pure functions from rows to text. `table.py` draws; each other module is one report."""
