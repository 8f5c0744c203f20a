"""Share a GPU cluster fairly beside an unmodified Slurm: budgets, fair-share, a contract."""

from __future__ import annotations

__version__ = "0.1.0"
