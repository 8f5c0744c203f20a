"""The ledger, the budgets and the journal."""

from __future__ import annotations

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

LEDGER = """
-- One attempt of a job. Identity is Slurm's own record id; half-open [start_at, end_at).
create table fairshare.run (
    cluster text not null,
    key text not null,
    job_id bigint not null,
    label text not null,
    account text not null,
    account_key text not null,
    user_name text not null,
    uid bigint not null,
    partition text not null,
    qos text not null,
    state text not null,
    submit_at timestamptz not null,
    eligible_at timestamptz,
    start_at timestamptz,
    end_at timestamptz,
    gpus jsonb not null,
    gpu_count integer not null,
    cpus integer not null,
    memory_mb bigint not null,
    milli_gpus bigint not null,
    charged boolean not null,
    min_runtime bigint,
    resumable boolean,
    team_priority text,
    notice text,
    nodes text not null,
    flag text not null,
    recorded_at timestamptz not null,
    constraint run_pkey primary key (cluster, key)
);
-- Window sums read the runs that ended inside or after the window from this index alone.
create index run_ended on fairshare.run (cluster, end_at) include (start_at, account_key, milli_gpus, charged);
create index run_open on fairshare.run (cluster, job_id) where end_at is null;
create index run_job on fairshare.run (cluster, job_id, start_at);

-- Lines of accounting that could not be read. Kept and counted; never taken as zero.
create table fairshare.rejected_row (
    cluster text not null,
    digest text not null,
    source text not null,
    text text not null,
    reason text not null,
    first_at timestamptz not null,
    constraint rejected_row_pkey primary key (cluster, digest)
);
create index rejected_row_first on fairshare.rejected_row (cluster, first_at);

-- The stretch [since, until) of accounting that has been read without a gap.
create table fairshare.poll (
    cluster text not null,
    source text not null,
    since timestamptz not null,
    until timestamptz not null,
    at timestamptz not null,
    runs integer not null,
    rejected integer not null,
    constraint poll_pkey primary key (cluster, source)
);

-- GPUs by what they can be used for: a step function per GPU type, one row per change.
create table fairshare.capacity (
    cluster text not null,
    kind text not null,
    at timestamptz not null,
    installed integer not null,
    down integer not null,
    drained integer not null,
    allocated integer not null,
    constraint capacity_pkey primary key (cluster, kind, at)
);

-- A credit (negative) or a debit by hand. Counts in the windows that hold `at`, until it expires.
create table fairshare.adjustment (
    cluster text not null,
    id text not null,
    account text not null,
    account_key text not null,
    milli_gpu_seconds bigint not null,
    at timestamptz not null,
    author text not null,
    reason text not null,
    expires_at timestamptz,
    constraint adjustment_pkey primary key (cluster, id)
);
create index adjustment_at on fairshare.adjustment (cluster, at);

-- Small things an adapter wants to remember.
create table fairshare.fact (
    cluster text not null,
    name text not null,
    value jsonb not null,
    at timestamptz not null,
    constraint fact_pkey primary key (cluster, name)
);
"""

PICTURE = """
-- The newest picture of slurmctld's queue and nodes. Each tick replaces it.
create table fairshare.picture (
    cluster text not null,
    at timestamptz not null,
    constraint picture_pkey primary key (cluster)
);
create table fairshare.queue_job (
    cluster text not null,
    job_id bigint not null,
    label text not null,
    name text not null,
    account text not null,
    account_key text not null,
    user_name text not null,
    uid bigint not null,
    partitions text[] not null,
    qos text not null,
    state text not null,
    reason text not null,
    priority bigint not null,
    submit_at timestamptz not null,
    eligible_at timestamptz,
    start_at timestamptz,
    time_limit interval,
    gpus jsonb not null,
    gpu_count integer not null,
    cpus integer not null,
    memory_mb bigint not null,
    node_count integer not null,
    nodes text[] not null,
    by_node jsonb not null,
    min_runtime bigint,
    resumable boolean,
    team_priority text,
    notice text,
    requeueable boolean not null,
    batch boolean not null,
    array_size integer not null,
    array_limit integer not null,
    het_leader bigint not null,
    restarts integer not null,
    constraints text[] not null,
    holding boolean not null,
    charged boolean not null,
    milli_gpus bigint not null,
    constraint queue_job_pkey primary key (cluster, job_id, label)
);
create table fairshare.slurm_node (
    cluster text not null,
    name text not null,
    states text[] not null,
    partitions text[] not null,
    features text[] not null,
    reason text not null,
    gpus jsonb not null,
    cpus integer not null,
    memory_mb bigint not null,
    allocated_gpus jsonb not null,
    allocated_cpus integer not null,
    allocated_memory_mb bigint not null,
    constraint slurm_node_pkey primary key (cluster, name)
);

-- Jobs that held GPUs in one picture and not in the next, until accounting has closed their run: how long they
-- were seen alive, which is as long as a run without an end may count.
create table fairshare.sighting (
    cluster text not null,
    job_id bigint not null,
    start_at timestamptz not null,
    last_seen timestamptz not null,
    label text not null,
    account text not null,
    account_key text not null,
    user_name text not null,
    qos text not null,
    gpus jsonb not null,
    gpu_count integer not null,
    milli_gpus bigint not null,
    charged boolean not null,
    constraint sighting_pkey primary key (cluster, job_id, start_at)
);
"""

BUDGETS = """
-- Dated edits of the tree. A sibling set is replaced as a whole; nothing is ever overwritten.
create table fairshare.changeset (
    cluster text not null,
    id bigint not null,
    author text not null,
    reason text not null,
    created_at timestamptz not null,
    effective_at timestamptz not null,
    constraint changeset_pkey primary key (cluster, id)
);
create table fairshare.changeset_set (
    cluster text not null,
    changeset_id bigint not null,
    parent text not null,
    constraint changeset_set_pkey primary key (cluster, changeset_id, parent),
    constraint changeset_set_changeset foreign key (cluster, changeset_id)
        references fairshare.changeset (cluster, id)
);
create table fairshare.changeset_share (
    cluster text not null,
    changeset_id bigint not null,
    parent text not null,
    name text not null,
    position integer not null,
    weight double precision not null,
    account text,
    constraint changeset_share_pkey primary key (cluster, changeset_id, parent, name),
    constraint changeset_share_set foreign key (cluster, changeset_id, parent)
        references fairshare.changeset_set (cluster, changeset_id, parent)
);
"""

JOURNAL = """
create table fairshare.tick (
    cluster text not null,
    at timestamptz not null,
    finished_at timestamptz not null,
    window_start timestamptz not null,
    window_end timestamptz not null,
    effective_from timestamptz,
    pushed boolean not null,
    changes text[] not null,
    unknown_accounts text[] not null,
    unbudgeted_accounts text[] not null,
    hourly boolean not null,  -- the first of its hour: its standings are kept long
    constraint tick_pkey primary key (cluster, at)
);
create index tick_passing on fairshare.tick (cluster, at) where not hourly;

-- How each node of the tree stood at a tick; `position` is the order of the tree, parents first.
create table fairshare.standing (
    cluster text not null,
    at timestamptz not null,
    path text not null,
    position integer not null,
    name text not null,
    weight double precision not null,
    share double precision not null,
    entitlement double precision not null,
    usage double precision not null,
    account text,
    account_key text,
    rank integer,
    label bigint,
    constraint standing_pkey primary key (cluster, at, path),
    constraint standing_tick foreign key (cluster, at) references fairshare.tick (cluster, at) on delete cascade
);

create table fairshare.failure (
    cluster text not null,
    at timestamptz not null,
    phase text not null,
    error text not null,
    constraint failure_pkey primary key (cluster, at, phase)
);

-- Recorded before anything is done about them. `outcome` is the newest of decision_outcome.
create table fairshare.decision (
    cluster text not null,
    id text not null,
    at timestamptz not null,
    rule text not null,
    victim_job_id bigint not null,
    victim_label text not null,
    victim_user text not null,
    victim_account text not null,
    victim_leaf text not null,
    victim_node text not null,
    victim_ratio double precision not null,
    victim_gpus integer not null,
    started_at timestamptz not null,
    min_runtime bigint not null,
    over_minimum bigint not null,
    resumable boolean not null,
    requeue boolean not null,
    preemptor_job_id bigint,
    preemptor_label text,
    preemptor_user text,
    preemptor_account text,
    preemptor_leaf text,
    preemptor_node text,
    preemptor_ratio double precision,
    preemptor_gpus integer,
    hysteresis double precision not null,
    nodes text[] not null,
    notice text,
    dry_run boolean not null,
    outcome text not null,
    changed_at timestamptz not null,
    detail text not null,
    constraint decision_pkey primary key (cluster, id)
);
create index decision_at on fairshare.decision (cluster, at);
create index decision_victim on fairshare.decision (cluster, victim_job_id);
create index decision_preemptor on fairshare.decision (cluster, preemptor_job_id);
create table fairshare.decision_outcome (
    cluster text not null,
    decision_id text not null,
    at timestamptz not null,
    outcome text not null,
    detail text not null,
    constraint decision_outcome_pkey primary key (cluster, decision_id, at, outcome),
    constraint decision_outcome_decision foreign key (cluster, decision_id)
        references fairshare.decision (cluster, id)
);
"""

APPEND_ONLY = """
create function fairshare.refuse_change() returns trigger language plpgsql as $$
begin
    raise exception '% of %: what was recorded stays; add a new row instead', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end $$;
"""

APPEND_ONLY_TABLES = (
    "changeset",
    "changeset_set",
    "changeset_share",
    "adjustment",
    "decision_outcome",
)


def upgrade() -> None:
    for part in (LEDGER, PICTURE, BUDGETS, JOURNAL, APPEND_ONLY):
        op.execute(part)
    for table in APPEND_ONLY_TABLES:
        op.execute(
            f"create trigger append_only before update or delete or truncate on fairshare.{table} "
            "for each statement execute function fairshare.refuse_change()"
        )
