"""Managers: who may edit which part of the tree, enforced here; changesets that cannot be forged, cut or mended.

What a rule of a role needs is looked up by the role's name when it is used, so the roles may be made later
(`slurm-fairshare database roles`), and without them only the owner of these tables can write, as before.

Who acts is always `session_user`, who logged in: neither SET ROLE nor a function that runs as somebody else
changes it. Every function names all it uses with its schema and pins search_path, temporary objects last.
"""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

# `members`: so many rows of changeset_set and changeset_share belong to it; with them it is sealed. `made_in`: the
# transaction that made it, outside of which nothing is added to it.
COLUMNS = """
alter table fairshare.changeset
    add column cancels bigint,
    add column members integer not null default 0,
    add column made_in bigint not null default 0,
    add constraint changeset_cancels foreign key (cluster, cancels) references fairshare.changeset (cluster, id),
    add constraint changeset_effective check (effective_at > '1970-01-01' and effective_at < '3000-01-01');
alter table fairshare.changeset alter column members drop default;
create unique index changeset_cancelled_once on fairshare.changeset (cluster, cancels) where cancels is not null;

-- Postgres knows moments, infinite ones too, that nobody who reads the row could hold.
alter table fairshare.adjustment add constraint adjustment_moments check (
    at > '1970-01-01' and at < '3000-01-01' and expires_at > '1970-01-01' and expires_at < '3000-01-01'
);

alter table fairshare.changeset_set add constraint changeset_set_parent check (
    parent !~ '(^/|//|/$|[[:cntrl:]])' and cardinality(string_to_array(parent, '/')) < 32
);
-- NaN is greater than every number here, so it is no share either.
alter table fairshare.changeset_share
    add constraint changeset_share_weight check (weight >= 0 and weight < 'infinity'),
    add constraint changeset_share_name check (name !~ '[/[:cntrl:]]' and name ~ '^\\S(.*\\S)?$'),
    add constraint changeset_share_account check (account ~ '\\S');
create unique index changeset_share_case on fairshare.changeset_share
    (cluster, changeset_id, parent, lower(name));
"""

# A grant or its end; the newest row of a path and a role counts.
MANAGER = """
create table fairshare.manager (
    cluster text not null,
    id bigint not null,
    path text not null,
    role_name text not null,
    granted boolean not null,
    author text not null,
    reason text not null,
    at timestamptz not null,
    constraint manager_pkey primary key (cluster, id)
);
create trigger append_only before update or delete or truncate on fairshare.manager
    for each statement execute function fairshare.refuse_change();

create view fairshare.manager_now as
select newest.cluster, newest.path, newest.role_name, newest.author, newest.reason, newest.at
from (
    select distinct on (m.cluster, m.path, m.role_name) m.*
    from fairshare.manager m order by m.cluster, m.path, m.role_name, m.id desc
) newest
where newest.granted;
"""

WHO = """
create function fairshare.is_owner() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select pg_has_role(session_user, c.relowner, 'member') from pg_class c where c.oid = 'fairshare.changeset'::regclass
$$;

create function fairshare.is_admin() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from pg_roles r where r.rolname = 'fairshare_admin' and pg_has_role(session_user, r.oid, 'member')
    )
$$;

-- Whether who is logged in may replace the children of this node.
create function fairshare.may_edit(of_cluster text, parent text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select fairshare.is_admin() or exists (
        select from fairshare.manager_now m
        where m.cluster = of_cluster and m.role_name = session_user
          and (m.path = '' or m.path = parent or starts_with(parent, m.path || '/'))
    )
$$;

create function fairshare.may_edit_something(of_cluster text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select fairshare.is_admin() or exists (
        select from fairshare.manager_now m where m.cluster = of_cluster and m.role_name = session_user
    )
$$;
"""

TREE = """
-- The tree in force at a moment, by the rule of core/tree.py: for each parent the newest set that is effective.
create function fairshare.tree_at(of_cluster text, moment timestamptz)
returns table (path text, parent text, name text, weight double precision, account text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive newest as (
        select distinct on (s.parent) s.parent, s.changeset_id
        from fairshare.changeset_set s
        join fairshare.changeset c on c.cluster = s.cluster and c.id = s.changeset_id
        where s.cluster = of_cluster and c.effective_at <= moment and not exists (
            select from fairshare.changeset x where x.cluster = c.cluster and x.cancels = c.id
        )
        order by s.parent, c.effective_at desc, c.id desc
    ), child as (
        select case when n.parent = '' then h.name else n.parent || '/' || h.name end as path,
               n.parent, h.name, h.weight, h.account
        from newest n
        join fairshare.changeset_share h
          on h.cluster = of_cluster and h.changeset_id = n.changeset_id and h.parent = n.parent
    ), node as (
        select child.* from child where child.parent = ''
        union all
        select child.* from node join child on child.parent = node.path where node.account is null
    )
    select * from node
$$;

-- What is wrong with that tree, null if nothing is. The same account twice would take another team's usage.
create function fairshare.tree_fault(of_cluster text, moment timestamptz) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    with node as (select * from fairshare.tree_at(of_cluster, moment)), fault as (
        select format('%s has neither an account nor children', n.path) as words from node n
        where n.account is null and not exists (select from node b where b.parent = n.path)
        union all
        select format('account %s is bound to %s', min(n.account), string_agg(n.path, ' and ')) from node n
        where n.account is not null group by lower(n.account {collation}) having count(*) > 1
    )
    select min(words) from fault
$$;
"""

CHANGESETS = """
create function fairshare.changeset_begins() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    last bigint;
    target fairshare.changeset;
begin
    perform pg_advisory_xact_lock(hashtext('fairshare.changeset'), hashtext(new.cluster));
    select coalesce(max(id), 0) into last from fairshare.changeset where cluster = new.cluster;
    if new.id is distinct from last + 1 then
        raise exception 'the next changeset of cluster % is %, not %', new.cluster, last + 1, new.id
            using errcode = 'serialization_failure';
    end if;
    new.made_in := pg_current_xact_id()::text::bigint;
    if not fairshare.is_owner() then
        -- An older snapshot would still hold grants that have been taken back.
        if current_setting('transaction_isolation') <> 'read committed' then
            raise exception 'budgets are edited in read committed transactions only'
                using errcode = 'insufficient_privilege';
        end if;
        new.author := session_user;
        new.created_at := clock_timestamp();
        if new.effective_at < new.created_at - interval '10 minutes' then
            raise exception 'a changeset takes effect now or later; the past stays'
                using errcode = 'insufficient_privilege';
        end if;
        new.effective_at := greatest(new.effective_at, new.created_at);
    end if;
    if new.cancels is not null then
        select * into target from fairshare.changeset where cluster = new.cluster and id = new.cancels;
        if target.cancels is not null or target.effective_at <= new.created_at then
            raise exception 'changeset % is in force or cancels another; what was recorded stays', new.cancels
                using errcode = 'restrict_violation';
        end if;
        if not fairshare.is_owner() and exists (
            select from fairshare.changeset_set s
            where s.cluster = new.cluster and s.changeset_id = new.cancels
              and not fairshare.may_edit(s.cluster, s.parent)
        ) then
            raise exception 'changeset % edits what % does not manage', new.cancels, session_user
                using errcode = 'insufficient_privilege';
        end if;
    end if;
    return new;
end $$;
create trigger changeset_begins before insert on fairshare.changeset
    for each row execute function fairshare.changeset_begins();

create function fairshare.changeset_grows() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    header record;
begin
    for header in
        select c.id, c.members, c.made_in,
               (select count(*) from fairshare.changeset_set s
                where s.cluster = c.cluster and s.changeset_id = c.id)
             + (select count(*) from fairshare.changeset_share h
                where h.cluster = c.cluster and h.changeset_id = c.id) as found
        from (select distinct cluster, changeset_id from added) a
        join fairshare.changeset c on c.cluster = a.cluster and c.id = a.changeset_id
    loop
        if header.made_in <> pg_current_xact_id()::text::bigint or header.found > header.members then
            raise exception 'changeset % is complete: what was recorded stays; add a new one instead', header.id
                using errcode = 'restrict_violation';
        end if;
    end loop;
    return null;
end $$;
create trigger changeset_grows after insert on fairshare.changeset_set
    referencing new table as added for each statement execute function fairshare.changeset_grows();
create trigger changeset_grows after insert on fairshare.changeset_share
    referencing new table as added for each statement execute function fairshare.changeset_grows();

create function fairshare.changeset_ends() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    sets bigint;
    shares bigint;
    moment timestamptz;
    fault text;
begin
    select count(*) into sets from fairshare.changeset_set s
        where s.cluster = new.cluster and s.changeset_id = new.id;
    select count(*) into shares from fairshare.changeset_share h
        where h.cluster = new.cluster and h.changeset_id = new.id;
    if sets + shares <> new.members or (sets = 0) <> (new.cancels is not null) then
        raise exception 'changeset % is not complete: % rows of % are there', new.id, sets + shares, new.members
            using errcode = 'check_violation';
    end if;
    for moment in
        select new.effective_at
        union
        select c.effective_at from fairshare.changeset c
        where c.cluster = new.cluster and c.effective_at > new.effective_at
    loop
        fault := fairshare.tree_fault(new.cluster, moment);
        if fault is not null then
            raise exception 'this budget tree cannot be used (%): %', moment, fault using errcode = 'check_violation';
        end if;
    end loop;
    -- Who held the transaction open may be no manager any more.
    if not fairshare.is_owner() and exists (
        select from fairshare.changeset_set s
        where s.cluster = new.cluster and s.changeset_id in (new.id, new.cancels)
          and not fairshare.may_edit(s.cluster, s.parent)
    ) then
        raise exception '% does not manage all of changeset %', session_user, new.id
            using errcode = 'insufficient_privilege';
    end if;
    -- Nobody lays a set in store below a name that another will give a node one day.
    select h.parent into fault from fairshare.changeset_share h
    where h.cluster = new.cluster and h.changeset_id = new.id and h.parent <> '' and not exists (
        select from fairshare.tree_at(new.cluster, new.effective_at) n
        where n.path = h.parent and n.account is null
    ) limit 1;
    if fault is not null and not fairshare.is_owner() then
        raise exception 'there is no node % to have children', fault using errcode = 'check_violation';
    end if;
    return null;
end $$;
create constraint trigger changeset_ends after insert on fairshare.changeset
    deferrable initially deferred for each row execute function fairshare.changeset_ends();
"""

SIGNED = """
create function fairshare.manager_begins() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    perform pg_advisory_xact_lock(hashtext('fairshare.manager'), hashtext(new.cluster));
    select coalesce(max(id), 0) + 1 into new.id from fairshare.manager where cluster = new.cluster;
    if not fairshare.is_owner() then
        new.author := session_user;
        new.at := clock_timestamp();
    end if;
    return new;
end $$;
create trigger manager_begins before insert on fairshare.manager
    for each row execute function fairshare.manager_begins();

create function fairshare.adjustment_begins() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if not fairshare.is_owner() then
        new.author := session_user;
    end if;
    return new;
end $$;
create trigger adjustment_begins before insert on fairshare.adjustment
    for each row execute function fairshare.adjustment_begins();
"""

# The owner of the tables is not bound by these: no person logs in as it.
POLICIES = """
alter table fairshare.changeset enable row level security;
alter table fairshare.changeset_set enable row level security;
alter table fairshare.changeset_share enable row level security;
alter table fairshare.manager enable row level security;

create policy readable on fairshare.changeset for select using (true);
create policy readable on fairshare.changeset_set for select using (true);
create policy readable on fairshare.changeset_share for select using (true);
create policy readable on fairshare.manager for select using (true);

create policy managed on fairshare.changeset for insert with check (fairshare.may_edit_something(cluster));
create policy managed on fairshare.changeset_set for insert with check (fairshare.may_edit(cluster, parent));
create policy managed on fairshare.changeset_share for insert with check (fairshare.may_edit(cluster, parent));
create policy administered on fairshare.manager for insert with check (fairshare.is_admin());
"""

# Who reads a view needs rights on what it shows (Postgres 15 and newer).
INVOKER = """
do $$
declare
    view regclass;
begin
    if current_setting('server_version_num')::int >= 150000 then
        for view in select c.oid from pg_class c where c.relnamespace = 'fairshare'::regnamespace and c.relkind = 'v'
        loop
            execute format('alter view %s set (security_invoker = true)', view);
        end loop;
    end if;
    execute 'revoke execute on all functions in schema fairshare from public';
end $$;
"""


def upgrade() -> None:
    # Accounts are told apart without regard to case in every script, where this Postgres can.
    found = "select exists (select from pg_collation where collname = 'und-x-icu' and collencoding in (-1, 6))"
    icu = op.get_bind().exec_driver_sql(found).scalar()
    tree = TREE.replace("{collation}", 'collate pg_catalog."und-x-icu"' if icu else "")
    for part in (COLUMNS, MANAGER, WHO, tree, CHANGESETS, SIGNED, POLICIES, INVOKER):
        op.get_bind().exec_driver_sql(part.replace("%", "%%"))
