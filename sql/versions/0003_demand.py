"""Demand over time, and how busy the GPUs of a run were."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = """
-- GPUs that an account's contract jobs hold or wait for: a step function per account, one row per change. The
-- empty key is all accounts together and is there from the first look on. Hours that are long past hold their mean.
create table fairshare.demand (
    cluster text not null,
    account_key text not null,
    at timestamptz not null,
    gpus double precision not null,
    constraint demand_pkey primary key (cluster, account_key, at)
);

-- The fraction of a run's GPU time in which its GPUs were busy, where the site gathers gres/gpuutil.
create table fairshare.utilisation (
    cluster text not null,
    key text not null,
    busy double precision not null,
    constraint utilisation_pkey primary key (cluster, key)
);
"""


def upgrade() -> None:
    op.execute(TABLES)
