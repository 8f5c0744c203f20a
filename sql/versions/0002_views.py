"""Views to read from: what counts as usage, and how everybody stands now."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# The rule of what a run counts, in one place for window sums and for people.
#
# - A run accounting has closed: from its start to its end.
# - A run without an end that the newest picture shows alive: up to now (`until_at` is null). A resized job has
#   several runs and one start in slurmctld, so alive means: holding, and not started after the run did.
# - A run without an end that started after the newest picture: up to now, since that picture cannot know it.
# - Any other run without an end: as long as it was seen alive, so that a runaway does not grow.
# - A job the picture shows alive and accounting does not know (yet): from its start up to now. Where accounting
#   knows its closed RESIZING parts, from the end of those.
# - A job that has left the picture before accounting got to know it: as long as it was seen alive.
RUN_USAGE = """
create view fairshare.run_usage as
select r.cluster, r.key, r.job_id, r.label, r.account, r.account_key, r.user_name, r.qos, r.charged,
       r.gpus, r.gpu_count, r.milli_gpus, r.start_at, r.end_at as until_at
from fairshare.run r
where r.end_at is not null
union all
select r.cluster, r.key, r.job_id, r.label, r.account, r.account_key, r.user_name, r.qos, r.charged,
       r.gpus, r.gpu_count, r.milli_gpus, r.start_at,
       case
           when p.at is null or r.start_at > p.at then null
           when exists (
               select from fairshare.queue_job q
               where q.cluster = r.cluster and q.job_id = r.job_id and q.holding and q.start_at <= r.start_at
           ) then null
           else greatest(r.start_at, (
               select max(s.last_seen) from fairshare.sighting s
               where s.cluster = r.cluster and s.job_id = r.job_id and s.start_at <= r.start_at
           ))
       end
from fairshare.run r
left join fairshare.picture p on p.cluster = r.cluster
where r.end_at is null and r.start_at is not null
union all
select q.cluster, null, q.job_id, q.label, q.account, q.account_key, q.user_name, q.qos, q.charged,
       q.gpus, q.gpu_count, q.milli_gpus,
       greatest(q.start_at, (
           select max(r.end_at) from fairshare.run r
           where r.cluster = q.cluster and r.job_id = q.job_id and r.start_at >= q.start_at
       )), null
from fairshare.queue_job q
where q.holding and q.start_at is not null and not exists (
    select from fairshare.run r
    where r.cluster = q.cluster and r.job_id = q.job_id and r.start_at >= q.start_at and r.state <> 'RESIZING'
)
union all
select s.cluster, null, s.job_id, s.label, s.account, s.account_key, s.user_name, s.qos, s.charged,
       s.gpus, s.gpu_count, s.milli_gpus, s.start_at, s.last_seen
from fairshare.sighting s
where not exists (
    select from fairshare.run r
    where r.cluster = s.cluster and r.job_id = s.job_id and r.start_at >= s.start_at
);
"""

STANDING_NOW = """
create view fairshare.standing_now as
select s.cluster, s.at, s.path, s.name, s.account, s.weight, s.share, s.entitlement, s.usage,
       case when s.entitlement > 0 then s.usage / s.entitlement end as ratio, s.rank, s.label
from fairshare.standing s
where s.at = (select max(t.at) from fairshare.tick t where t.cluster = s.cluster)
order by s.cluster, s.position;
"""


def upgrade() -> None:
    op.execute(RUN_USAGE)
    op.execute(STANDING_NOW)
