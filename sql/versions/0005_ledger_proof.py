"""Hourly roll-ups of what ended runs are charged; what counts without them apart; capacity of the past."""

from __future__ import annotations

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

CAPACITY = """
-- How many were allocated is not known of the time before the first picture.
alter table fairshare.capacity alter column allocated drop not null;
"""

LIVE = """
drop view fairshare.run_usage;

-- What counts although accounting has not closed it. `basis`: what it rests on.
-- The rule in words stands at the view run_usage in 0002.
create view fairshare.live_usage as
select r.cluster, r.key, r.job_id, r.label, r.account, r.account_key, r.user_name, r.qos, r.charged,
       r.gpus, r.gpu_count, r.milli_gpus, r.start_at, seen.until_at,
       case when seen.until_at is null then 'running' else 'runaway' end as basis
from fairshare.run r
left join fairshare.picture p on p.cluster = r.cluster
cross join lateral (
    select case
        when p.at is null or r.start_at > p.at then null
        when exists (
            select from fairshare.queue_job q
            where q.cluster = r.cluster and q.job_id = r.job_id and q.holding and q.start_at <= r.start_at
        ) then null
        else greatest(r.start_at, (
            select max(s.last_seen) from fairshare.sighting s
            where s.cluster = r.cluster and s.job_id = r.job_id and s.start_at <= r.start_at
        ))
    end as until_at
) seen
where r.end_at is null and r.start_at is not null
union all
select q.cluster, null, q.job_id, q.label, q.account, q.account_key, q.user_name, q.qos, q.charged,
       q.gpus, q.gpu_count, q.milli_gpus,
       greatest(q.start_at, (
           select max(r.end_at) from fairshare.run r
           where r.cluster = q.cluster and r.job_id = q.job_id and r.start_at >= q.start_at
       )), null, 'queue'
from fairshare.queue_job q
where q.holding and q.start_at is not null and not exists (
    select from fairshare.run r
    where r.cluster = q.cluster and r.job_id = q.job_id and r.start_at >= q.start_at and r.state <> 'RESIZING'
)
union all
select s.cluster, null, s.job_id, s.label, s.account, s.account_key, s.user_name, s.qos, s.charged,
       s.gpus, s.gpu_count, s.milli_gpus, s.start_at, s.last_seen, 'sighting'
from fairshare.sighting s
where not exists (
    select from fairshare.run r
    where r.cluster = s.cluster and r.job_id = s.job_id and r.start_at >= s.start_at
);

create view fairshare.run_usage as
select r.cluster, r.key, r.job_id, r.label, r.account, r.account_key, r.user_name, r.qos, r.charged,
       r.gpus, r.gpu_count, r.milli_gpus, r.start_at, r.end_at as until_at, 'ended' as basis
from fairshare.run r
where r.end_at is not null
union all
select * from fairshare.live_usage;
"""

# Who reads a view needs rights on what it shows (Postgres 15 and newer).
INVOKER = """
do $$
begin
    if current_setting('server_version_num')::int >= 150000 then
        alter view fairshare.live_usage set (security_invoker = true);
        alter view fairshare.run_usage set (security_invoker = true);
    end if;
    revoke execute on function fairshare.hours_of(timestamptz, timestamptz, bigint), fairshare.roll_up() from public;
end $$;
"""

ROLL_UP = """
-- Charged milli-GPU-seconds of ended runs by hour and account: derived from fairshare.run in the statement that
-- changes it, so the two cannot part. `held`: milli-GPUs of the runs that go on at least to the end of the hour,
-- from which the part of an hour behind any second follows. All integers: order and repetition change nothing.
create table fairshare.usage_hour (
    cluster text not null,
    hour timestamptz not null,
    account_key text not null,
    milli bigint not null,
    held bigint not null,
    constraint usage_hour_pkey primary key (cluster, hour, account_key)
);
create index run_started on fairshare.run (cluster, start_at) where charged;

create function fairshare.hours_of(start_at timestamptz, end_at timestamptz, milli_gpus bigint)
returns table (hour timestamptz, milli bigint, held bigint)
language sql immutable parallel safe as $$
    select to_timestamp(h * 3600), milli_gpus * (least(b, (h + 1) * 3600) - greatest(a, h * 3600)),
           case when b >= (h + 1) * 3600 then milli_gpus else 0 end
    from (select floor(date_part('epoch', start_at))::bigint, floor(date_part('epoch', end_at))::bigint) as ends (a, b)
    cross join lateral generate_series(a / 3600, (b - 1) / 3600) as h
    where a < b
$$;

-- As the owner of the tables: whoever may write a run need have no right to write what follows from it.
create function fairshare.roll_up() returns trigger language plpgsql
security definer set search_path = pg_catalog, fairshare, pg_temp as $$
begin
    if tg_op <> 'INSERT' then
        insert into fairshare.usage_hour as kept
        select r.cluster, h.hour, r.account_key, -sum(h.milli), -sum(h.held)
        from gone r cross join lateral fairshare.hours_of(r.start_at, r.end_at, r.milli_gpus) h
        where r.charged and r.end_at is not null group by 1, 2, 3 order by 1, 2, 3
        on conflict (cluster, hour, account_key)
            do update set milli = kept.milli + excluded.milli, held = kept.held + excluded.held;
    end if;
    if tg_op <> 'DELETE' then
        insert into fairshare.usage_hour as kept
        select r.cluster, h.hour, r.account_key, sum(h.milli), sum(h.held)
        from made r cross join lateral fairshare.hours_of(r.start_at, r.end_at, r.milli_gpus) h
        where r.charged and r.end_at is not null group by 1, 2, 3 order by 1, 2, 3
        on conflict (cluster, hour, account_key)
            do update set milli = kept.milli + excluded.milli, held = kept.held + excluded.held;
    end if;
    return null;
end $$;

create trigger rolled_up_inserts after insert on fairshare.run
    referencing new table as made for each statement execute function fairshare.roll_up();
create trigger rolled_up_updates after update on fairshare.run
    referencing old table as gone new table as made for each statement execute function fairshare.roll_up();
create trigger rolled_up_deletes after delete on fairshare.run
    referencing old table as gone for each statement execute function fairshare.roll_up();

insert into fairshare.usage_hour
select r.cluster, h.hour, r.account_key, sum(h.milli), sum(h.held)
from fairshare.run r cross join lateral fairshare.hours_of(r.start_at, r.end_at, r.milli_gpus) h
where r.charged and r.end_at is not null group by 1, 2, 3;
"""


def upgrade() -> None:
    for part in (CAPACITY, LIVE, ROLL_UP, INVOKER):
        op.execute(part)
