"""Work lost with each decision, in GPU-seconds, and what it is counted from."""

from __future__ import annotations

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

COLUMNS = """
-- An estimate made with the decision; 0 and empty where it was taken before this version.
alter table fairshare.decision add column lost bigint not null default 0;
alter table fairshare.decision add column lost_since text not null default '';
"""


def upgrade() -> None:
    op.execute(COLUMNS)
