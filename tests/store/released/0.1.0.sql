--
-- PostgreSQL database dump
--


-- Dumped from database version 18.6
-- Dumped by pg_dump version 18.6

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: fairshare; Type: SCHEMA; Schema: -; Owner: -
--

CREATE SCHEMA fairshare;


--
-- Name: adjustment_begins(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.adjustment_begins() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if not fairshare.is_owner() then
        new.author := session_user;
    end if;
    return new;
end $$;


--
-- Name: changeset_begins(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.changeset_begins() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: changeset_ends(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.changeset_ends() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: changeset_grows(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.changeset_grows() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: hours_of(timestamp with time zone, timestamp with time zone, bigint); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.hours_of(start_at timestamp with time zone, end_at timestamp with time zone, milli_gpus bigint) RETURNS TABLE(hour timestamp with time zone, milli bigint, held bigint)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select to_timestamp(h * 3600), milli_gpus * (least(b, (h + 1) * 3600) - greatest(a, h * 3600)),
           case when b >= (h + 1) * 3600 then milli_gpus else 0 end
    from (select floor(date_part('epoch', start_at))::bigint, floor(date_part('epoch', end_at))::bigint) as ends (a, b)
    cross join lateral generate_series(a / 3600, (b - 1) / 3600) as h
    where a < b
$$;


--
-- Name: is_admin(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.is_admin() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select exists (
        select from pg_roles r where r.rolname = 'fairshare_admin' and pg_has_role(session_user, r.oid, 'member')
    )
$$;


--
-- Name: is_owner(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.is_owner() RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select pg_has_role(session_user, c.relowner, 'member') from pg_class c where c.oid = 'fairshare.changeset'::regclass
$$;


--
-- Name: manager_begins(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.manager_begins() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    perform pg_advisory_xact_lock(hashtext('fairshare.manager'), hashtext(new.cluster));
    select coalesce(max(id), 0) + 1 into new.id from fairshare.manager where cluster = new.cluster;
    if not fairshare.is_owner() then
        new.author := session_user;
        new.at := clock_timestamp();
    end if;
    return new;
end $$;


--
-- Name: may_edit(text, text); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.may_edit(of_cluster text, parent text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select fairshare.is_admin() or exists (
        select from fairshare.manager_now m
        where m.cluster = of_cluster and m.role_name = session_user
          and (m.path = '' or m.path = parent or starts_with(parent, m.path || '/'))
    )
$$;


--
-- Name: may_edit_something(text); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.may_edit_something(of_cluster text) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select fairshare.is_admin() or exists (
        select from fairshare.manager_now m where m.cluster = of_cluster and m.role_name = session_user
    )
$$;


--
-- Name: refuse_change(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.refuse_change() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
    raise exception '% of %: what was recorded stays; add a new row instead', tg_op, tg_table_name
        using errcode = 'restrict_violation';
end $$;


--
-- Name: roll_up(); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.roll_up() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'fairshare', 'pg_temp'
    AS $$
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


--
-- Name: tree_at(text, timestamp with time zone); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.tree_at(of_cluster text, moment timestamp with time zone) RETURNS TABLE(path text, parent text, name text, weight double precision, account text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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


--
-- Name: tree_fault(text, timestamp with time zone); Type: FUNCTION; Schema: fairshare; Owner: -
--

CREATE FUNCTION fairshare.tree_fault(of_cluster text, moment timestamp with time zone) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with node as (select * from fairshare.tree_at(of_cluster, moment)), fault as (
        select format('%s has neither an account nor children', n.path) as words from node n
        where n.account is null and not exists (select from node b where b.parent = n.path)
        union all
        select format('account %s is bound to %s', min(n.account), string_agg(n.path, ' and ')) from node n
        where n.account is not null group by lower(n.account ) having count(*) > 1
    )
    select min(words) from fault
$$;


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: adjustment; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.adjustment (
    cluster text NOT NULL,
    id text NOT NULL,
    account text NOT NULL,
    account_key text NOT NULL,
    milli_gpu_seconds bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT adjustment_moments CHECK (((at > '1970-01-01 00:00:00+00'::timestamp with time zone) AND (at < '3000-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at > '1970-01-01 00:00:00+00'::timestamp with time zone) AND (expires_at < '3000-01-01 00:00:00+00'::timestamp with time zone)))
);


--
-- Name: alembic_version; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.alembic_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: capacity; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.capacity (
    cluster text NOT NULL,
    kind text NOT NULL,
    at timestamp with time zone NOT NULL,
    installed integer NOT NULL,
    down integer NOT NULL,
    drained integer NOT NULL,
    allocated integer
);


--
-- Name: changeset; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.changeset (
    cluster text NOT NULL,
    id bigint NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    effective_at timestamp with time zone NOT NULL,
    cancels bigint,
    members integer NOT NULL,
    made_in bigint DEFAULT 0 NOT NULL,
    CONSTRAINT changeset_effective CHECK (((effective_at > '1970-01-01 00:00:00+00'::timestamp with time zone) AND (effective_at < '3000-01-01 00:00:00+00'::timestamp with time zone)))
);


--
-- Name: changeset_set; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.changeset_set (
    cluster text NOT NULL,
    changeset_id bigint NOT NULL,
    parent text NOT NULL,
    CONSTRAINT changeset_set_parent CHECK (((parent !~ '(^/|//|/$|[[:cntrl:]])'::text) AND (cardinality(string_to_array(parent, '/'::text)) < 32)))
);


--
-- Name: changeset_share; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.changeset_share (
    cluster text NOT NULL,
    changeset_id bigint NOT NULL,
    parent text NOT NULL,
    name text NOT NULL,
    "position" integer NOT NULL,
    weight double precision NOT NULL,
    account text,
    CONSTRAINT changeset_share_account CHECK ((account ~ '\S'::text)),
    CONSTRAINT changeset_share_name CHECK (((name !~ '[/[:cntrl:]]'::text) AND (name ~ '^\S(.*\S)?$'::text))),
    CONSTRAINT changeset_share_weight CHECK (((weight >= (0)::double precision) AND (weight < 'Infinity'::double precision)))
);


--
-- Name: decision; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.decision (
    cluster text NOT NULL,
    id text NOT NULL,
    at timestamp with time zone NOT NULL,
    rule text NOT NULL,
    victim_job_id bigint NOT NULL,
    victim_label text NOT NULL,
    victim_user text NOT NULL,
    victim_account text NOT NULL,
    victim_leaf text NOT NULL,
    victim_node text NOT NULL,
    victim_ratio double precision NOT NULL,
    victim_gpus integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    min_runtime bigint NOT NULL,
    over_minimum bigint NOT NULL,
    resumable boolean NOT NULL,
    requeue boolean NOT NULL,
    preemptor_job_id bigint,
    preemptor_label text,
    preemptor_user text,
    preemptor_account text,
    preemptor_leaf text,
    preemptor_node text,
    preemptor_ratio double precision,
    preemptor_gpus integer,
    hysteresis double precision NOT NULL,
    nodes text[] NOT NULL,
    notice text,
    dry_run boolean NOT NULL,
    outcome text NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    detail text NOT NULL,
    lost bigint DEFAULT 0 NOT NULL,
    lost_since text DEFAULT ''::text NOT NULL
);


--
-- Name: decision_outcome; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.decision_outcome (
    cluster text NOT NULL,
    decision_id text NOT NULL,
    at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    detail text NOT NULL
);


--
-- Name: demand; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.demand (
    cluster text NOT NULL,
    account_key text NOT NULL,
    at timestamp with time zone NOT NULL,
    gpus double precision NOT NULL
);


--
-- Name: fact; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.fact (
    cluster text NOT NULL,
    name text NOT NULL,
    value jsonb NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: failure; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.failure (
    cluster text NOT NULL,
    at timestamp with time zone NOT NULL,
    phase text NOT NULL,
    error text NOT NULL
);


--
-- Name: picture; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.picture (
    cluster text NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: queue_job; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.queue_job (
    cluster text NOT NULL,
    job_id bigint NOT NULL,
    label text NOT NULL,
    name text NOT NULL,
    account text NOT NULL,
    account_key text NOT NULL,
    user_name text NOT NULL,
    uid bigint NOT NULL,
    partitions text[] NOT NULL,
    qos text NOT NULL,
    state text NOT NULL,
    reason text NOT NULL,
    priority bigint NOT NULL,
    submit_at timestamp with time zone NOT NULL,
    eligible_at timestamp with time zone,
    start_at timestamp with time zone,
    time_limit interval,
    gpus jsonb NOT NULL,
    gpu_count integer NOT NULL,
    cpus integer NOT NULL,
    memory_mb bigint NOT NULL,
    node_count integer NOT NULL,
    nodes text[] NOT NULL,
    by_node jsonb NOT NULL,
    min_runtime bigint,
    resumable boolean,
    team_priority text,
    notice text,
    requeueable boolean NOT NULL,
    batch boolean NOT NULL,
    array_size integer NOT NULL,
    array_limit integer NOT NULL,
    het_leader bigint NOT NULL,
    restarts integer NOT NULL,
    constraints text[] NOT NULL,
    holding boolean NOT NULL,
    charged boolean NOT NULL,
    milli_gpus bigint NOT NULL
);


--
-- Name: run; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.run (
    cluster text NOT NULL,
    key text NOT NULL,
    job_id bigint NOT NULL,
    label text NOT NULL,
    account text NOT NULL,
    account_key text NOT NULL,
    user_name text NOT NULL,
    uid bigint NOT NULL,
    partition text NOT NULL,
    qos text NOT NULL,
    state text NOT NULL,
    submit_at timestamp with time zone NOT NULL,
    eligible_at timestamp with time zone,
    start_at timestamp with time zone,
    end_at timestamp with time zone,
    gpus jsonb NOT NULL,
    gpu_count integer NOT NULL,
    cpus integer NOT NULL,
    memory_mb bigint NOT NULL,
    milli_gpus bigint NOT NULL,
    charged boolean NOT NULL,
    min_runtime bigint,
    resumable boolean,
    team_priority text,
    notice text,
    nodes text NOT NULL,
    flag text NOT NULL,
    recorded_at timestamp with time zone NOT NULL
);


--
-- Name: sighting; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.sighting (
    cluster text NOT NULL,
    job_id bigint NOT NULL,
    start_at timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    label text NOT NULL,
    account text NOT NULL,
    account_key text NOT NULL,
    user_name text NOT NULL,
    qos text NOT NULL,
    gpus jsonb NOT NULL,
    gpu_count integer NOT NULL,
    milli_gpus bigint NOT NULL,
    charged boolean NOT NULL
);


--
-- Name: live_usage; Type: VIEW; Schema: fairshare; Owner: -
--

CREATE VIEW fairshare.live_usage WITH (security_invoker='true') AS
 SELECT r.cluster,
    r.key,
    r.job_id,
    r.label,
    r.account,
    r.account_key,
    r.user_name,
    r.qos,
    r.charged,
    r.gpus,
    r.gpu_count,
    r.milli_gpus,
    r.start_at,
    seen.until_at,
        CASE
            WHEN (seen.until_at IS NULL) THEN 'running'::text
            ELSE 'runaway'::text
        END AS basis
   FROM ((fairshare.run r
     LEFT JOIN fairshare.picture p ON ((p.cluster = r.cluster)))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN ((p.at IS NULL) OR (r.start_at > p.at)) THEN NULL::timestamp with time zone
                    WHEN (EXISTS ( SELECT
                       FROM fairshare.queue_job q
                      WHERE ((q.cluster = r.cluster) AND (q.job_id = r.job_id) AND q.holding AND (q.start_at <= r.start_at)))) THEN NULL::timestamp with time zone
                    ELSE GREATEST(r.start_at, ( SELECT max(s.last_seen) AS max
                       FROM fairshare.sighting s
                      WHERE ((s.cluster = r.cluster) AND (s.job_id = r.job_id) AND (s.start_at <= r.start_at))))
                END AS until_at) seen)
  WHERE ((r.end_at IS NULL) AND (r.start_at IS NOT NULL))
UNION ALL
 SELECT q.cluster,
    NULL::text AS key,
    q.job_id,
    q.label,
    q.account,
    q.account_key,
    q.user_name,
    q.qos,
    q.charged,
    q.gpus,
    q.gpu_count,
    q.milli_gpus,
    GREATEST(q.start_at, ( SELECT max(r.end_at) AS max
           FROM fairshare.run r
          WHERE ((r.cluster = q.cluster) AND (r.job_id = q.job_id) AND (r.start_at >= q.start_at)))) AS start_at,
    NULL::timestamp with time zone AS until_at,
    'queue'::text AS basis
   FROM fairshare.queue_job q
  WHERE (q.holding AND (q.start_at IS NOT NULL) AND (NOT (EXISTS ( SELECT
           FROM fairshare.run r
          WHERE ((r.cluster = q.cluster) AND (r.job_id = q.job_id) AND (r.start_at >= q.start_at) AND (r.state <> 'RESIZING'::text))))))
UNION ALL
 SELECT s.cluster,
    NULL::text AS key,
    s.job_id,
    s.label,
    s.account,
    s.account_key,
    s.user_name,
    s.qos,
    s.charged,
    s.gpus,
    s.gpu_count,
    s.milli_gpus,
    s.start_at,
    s.last_seen AS until_at,
    'sighting'::text AS basis
   FROM fairshare.sighting s
  WHERE (NOT (EXISTS ( SELECT
           FROM fairshare.run r
          WHERE ((r.cluster = s.cluster) AND (r.job_id = s.job_id) AND (r.start_at >= s.start_at)))));


--
-- Name: manager; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.manager (
    cluster text NOT NULL,
    id bigint NOT NULL,
    path text NOT NULL,
    role_name text NOT NULL,
    granted boolean NOT NULL,
    author text NOT NULL,
    reason text NOT NULL,
    at timestamp with time zone NOT NULL
);


--
-- Name: manager_now; Type: VIEW; Schema: fairshare; Owner: -
--

CREATE VIEW fairshare.manager_now WITH (security_invoker='true') AS
 SELECT cluster,
    path,
    role_name,
    author,
    reason,
    at
   FROM ( SELECT DISTINCT ON (m.cluster, m.path, m.role_name) m.cluster,
            m.id,
            m.path,
            m.role_name,
            m.granted,
            m.author,
            m.reason,
            m.at
           FROM fairshare.manager m
          ORDER BY m.cluster, m.path, m.role_name, m.id DESC) newest
  WHERE granted;


--
-- Name: poll; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.poll (
    cluster text NOT NULL,
    source text NOT NULL,
    since timestamp with time zone NOT NULL,
    until timestamp with time zone NOT NULL,
    at timestamp with time zone NOT NULL,
    runs integer NOT NULL,
    rejected integer NOT NULL
);


--
-- Name: rejected_row; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.rejected_row (
    cluster text NOT NULL,
    digest text NOT NULL,
    source text NOT NULL,
    text text NOT NULL,
    reason text NOT NULL,
    first_at timestamp with time zone NOT NULL
);


--
-- Name: run_usage; Type: VIEW; Schema: fairshare; Owner: -
--

CREATE VIEW fairshare.run_usage WITH (security_invoker='true') AS
 SELECT r.cluster,
    r.key,
    r.job_id,
    r.label,
    r.account,
    r.account_key,
    r.user_name,
    r.qos,
    r.charged,
    r.gpus,
    r.gpu_count,
    r.milli_gpus,
    r.start_at,
    r.end_at AS until_at,
    'ended'::text AS basis
   FROM fairshare.run r
  WHERE (r.end_at IS NOT NULL)
UNION ALL
 SELECT live_usage.cluster,
    live_usage.key,
    live_usage.job_id,
    live_usage.label,
    live_usage.account,
    live_usage.account_key,
    live_usage.user_name,
    live_usage.qos,
    live_usage.charged,
    live_usage.gpus,
    live_usage.gpu_count,
    live_usage.milli_gpus,
    live_usage.start_at,
    live_usage.until_at,
    live_usage.basis
   FROM fairshare.live_usage;


--
-- Name: slurm_node; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.slurm_node (
    cluster text NOT NULL,
    name text NOT NULL,
    states text[] NOT NULL,
    partitions text[] NOT NULL,
    features text[] NOT NULL,
    reason text NOT NULL,
    gpus jsonb NOT NULL,
    cpus integer NOT NULL,
    memory_mb bigint NOT NULL,
    allocated_gpus jsonb NOT NULL,
    allocated_cpus integer NOT NULL,
    allocated_memory_mb bigint NOT NULL
);


--
-- Name: standing; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.standing (
    cluster text NOT NULL,
    at timestamp with time zone NOT NULL,
    path text NOT NULL,
    "position" integer NOT NULL,
    name text NOT NULL,
    weight double precision NOT NULL,
    share double precision NOT NULL,
    entitlement double precision NOT NULL,
    usage double precision NOT NULL,
    account text,
    account_key text,
    rank integer,
    label bigint
);


--
-- Name: tick; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.tick (
    cluster text NOT NULL,
    at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone NOT NULL,
    window_start timestamp with time zone NOT NULL,
    window_end timestamp with time zone NOT NULL,
    effective_from timestamp with time zone,
    pushed boolean NOT NULL,
    changes text[] NOT NULL,
    unknown_accounts text[] NOT NULL,
    unbudgeted_accounts text[] NOT NULL,
    hourly boolean NOT NULL
);


--
-- Name: standing_now; Type: VIEW; Schema: fairshare; Owner: -
--

CREATE VIEW fairshare.standing_now WITH (security_invoker='true') AS
 SELECT cluster,
    at,
    path,
    name,
    account,
    weight,
    share,
    entitlement,
    usage,
        CASE
            WHEN (entitlement > (0)::double precision) THEN (usage / entitlement)
            ELSE NULL::double precision
        END AS ratio,
    rank,
    label
   FROM fairshare.standing s
  WHERE (at = ( SELECT max(t.at) AS max
           FROM fairshare.tick t
          WHERE (t.cluster = s.cluster)))
  ORDER BY cluster, "position";


--
-- Name: usage_hour; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.usage_hour (
    cluster text NOT NULL,
    hour timestamp with time zone NOT NULL,
    account_key text NOT NULL,
    milli bigint NOT NULL,
    held bigint NOT NULL
);


--
-- Name: utilisation; Type: TABLE; Schema: fairshare; Owner: -
--

CREATE TABLE fairshare.utilisation (
    cluster text NOT NULL,
    key text NOT NULL,
    busy double precision NOT NULL
);


--
-- Data for Name: adjustment; Type: TABLE DATA; Schema: fairshare; Owner: -
--



--
-- Data for Name: alembic_version; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.alembic_version VALUES ('0006');


--
-- Data for Name: capacity; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.capacity VALUES ('test', 'h100', '2026-11-23 11:00:00+00', 8, 0, 0, 0);


--
-- Data for Name: changeset; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.changeset VALUES ('test', 1, 'ada', 'the programme', '2026-11-22 12:00:00+00', '2026-11-22 12:00:00+00', NULL, 5, 754);


--
-- Data for Name: changeset_set; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.changeset_set VALUES ('test', 1, '');
INSERT INTO fairshare.changeset_set VALUES ('test', 1, 'lab');


--
-- Data for Name: changeset_share; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.changeset_share VALUES ('test', 1, '', 'lab', 0, 1, NULL);
INSERT INTO fairshare.changeset_share VALUES ('test', 1, 'lab', 'nlp', 0, 2, 'nlp');
INSERT INTO fairshare.changeset_share VALUES ('test', 1, 'lab', 'vision', 1, 1, 'vision');


--
-- Data for Name: decision; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.decision VALUES ('test', 'd0', '2026-11-22 17:00:00+00', 'under-served', 1, '1', 'alice', 'NLP', 'org/b', 'org/b', 1.5, 8, '2026-11-22 14:00:00+00', 3600, 7200, true, true, 2, '2', 'alice', 'NLP', 'org/b', 'org/b', 'Infinity', 8, 0.1, '{n1,n2}', 'USR1', false, 'requeued', '2026-11-22 18:00:00+00', '', 0, '');


--
-- Data for Name: decision_outcome; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.decision_outcome VALUES ('test', 'd0', '2026-11-22 17:00:00+00', 'decided', '');
INSERT INTO fairshare.decision_outcome VALUES ('test', 'd0', '2026-11-22 18:00:00+00', 'requeued', '');


--
-- Data for Name: demand; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.demand VALUES ('test', '', '2026-11-23 11:00:00+00', 2);
INSERT INTO fairshare.demand VALUES ('test', 'nlp', '2026-11-23 11:00:00+00', 2);


--
-- Data for Name: fact; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.fact VALUES ('test', 'prices', '{"weights": {}, "dominant": null}', '2026-11-23 11:00:00+00');
INSERT INTO fairshare.fact VALUES ('test', 'smoke', '"d0"', '2026-11-23 12:00:00+00');


--
-- Data for Name: failure; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.failure VALUES ('test', '2026-11-23 12:30:00+00', 'plan', 'slurmdbd is down');


--
-- Data for Name: manager; Type: TABLE DATA; Schema: fairshare; Owner: -
--



--
-- Data for Name: picture; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.picture VALUES ('test', '2026-11-23 11:00:00+00');


--
-- Data for Name: poll; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.poll VALUES ('test', 'sacct', '2026-11-22 12:00:00+00', '2026-11-23 12:00:00+00', '2026-11-23 12:00:00+00', 0, 1);


--
-- Data for Name: queue_job; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.queue_job VALUES ('test', 10, '10', '', 'nlp', 'nlp', 'alice', 2001, '{gpu,debug}', 'fs-1h', 'RUNNING', 'None', 120000, '2026-11-22 12:00:00+00', '2026-11-22 12:00:00+00', '2026-11-22 13:00:00+00', '1 day', '{"h100": 1}', 1, 8, 1000, 1, '{n1}', '{"n1": {"cpus": 8, "gpus": {"h100": 1}, "memory_mb": 1000}}', 3600, true, 'normal', 'USR1', true, true, 1, 0, 0, 0, '{}', true, true, 1000);
INSERT INTO fairshare.queue_job VALUES ('test', 11, '11', '', 'nlp', 'nlp', 'alice', 2001, '{gpu,debug}', 'fs-1h', 'PENDING', 'Resources', 120000, '2026-11-22 11:00:00+00', '2026-11-22 11:00:00+00', NULL, '1 day', '{"h100": 1}', 1, 8, 1000, 1, '{}', '{}', 3600, true, 'normal', 'USR1', true, true, 1, 0, 0, 0, '{}', false, true, 1000);


--
-- Data for Name: rejected_row; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.rejected_row VALUES ('test', '9cb1e9ec95f39f3820ce5ae7576e200fb56056897a648c7d9d6c35b48804ddac', 'sacct', 'd0', 'unreadable', '2026-11-23 12:00:00+00');


--
-- Data for Name: run; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.run VALUES ('test', 'd0-1', 1, '1', 'nlp', 'nlp', 'alice', 2001, 'gpu', 'fs-1h', 'COMPLETED', '2026-11-22 12:00:00+00', '2026-11-22 12:00:00+00', '2026-11-22 13:00:00+00', '2026-11-22 14:00:00+00', '{"h100": 1}', 1, 8, 1000, 1000, true, NULL, NULL, NULL, NULL, 'n1', '', '2026-11-23 12:00:00+00');
INSERT INTO fairshare.run VALUES ('test', 'd0-2', 2, '2', 'nlp', 'nlp', 'alice', 2001, 'gpu', 'fs-1h', 'RUNNING', '2026-11-22 14:00:00+00', '2026-11-22 14:00:00+00', '2026-11-22 15:00:00+00', NULL, '{"h100": 1}', 1, 8, 1000, 1000, true, NULL, NULL, NULL, NULL, 'n1', '', '2026-11-23 12:00:00+00');


--
-- Data for Name: sighting; Type: TABLE DATA; Schema: fairshare; Owner: -
--



--
-- Data for Name: slurm_node; Type: TABLE DATA; Schema: fairshare; Owner: -
--



--
-- Data for Name: standing; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.standing VALUES ('test', '2026-11-23 12:00:00+00', 'org', 0, 'org', 1, 1, 2073600, 12679.011333333334, NULL, NULL, NULL, NULL);
INSERT INTO fairshare.standing VALUES ('test', '2026-11-23 12:00:00+00', 'org/a', 1, 'a', 3, 0.75, 1555200, 333.3333333333333, NULL, NULL, NULL, NULL);
INSERT INTO fairshare.standing VALUES ('test', '2026-11-23 12:00:00+00', 'org/a/robots', 2, 'robots', 0.1, 0.06818181818181819, 141381.8181818182, 0, 'robots', 'robots', 1, NULL);
INSERT INTO fairshare.standing VALUES ('test', '2026-11-23 12:00:00+00', 'org/a/vision', 3, 'vision', 1, 0.6818181818181818, 1413818.1818181816, 333.3333333333333, 'vision', 'vision', 2, NULL);
INSERT INTO fairshare.standing VALUES ('test', '2026-11-23 12:00:00+00', 'org/b', 4, 'b', 1, 0.25, 518400, 12345.678, 'NLP', 'nlp', 3, NULL);


--
-- Data for Name: tick; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.tick VALUES ('test', '2026-11-23 12:00:00+00', '2026-11-23 12:00:01.5+00', '2026-11-22 12:00:00+00', '2026-11-23 12:00:00+00', '2026-11-22 12:00:00+00', true, '{}', '{ghost}', '{root,old}', true);


--
-- Data for Name: usage_hour; Type: TABLE DATA; Schema: fairshare; Owner: -
--

INSERT INTO fairshare.usage_hour VALUES ('test', '2026-11-22 13:00:00+00', 'nlp', 3600000, 1000);


--
-- Data for Name: utilisation; Type: TABLE DATA; Schema: fairshare; Owner: -
--



--
-- Name: adjustment adjustment_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.adjustment
    ADD CONSTRAINT adjustment_pkey PRIMARY KEY (cluster, id);


--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);


--
-- Name: capacity capacity_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.capacity
    ADD CONSTRAINT capacity_pkey PRIMARY KEY (cluster, kind, at);


--
-- Name: changeset changeset_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset
    ADD CONSTRAINT changeset_pkey PRIMARY KEY (cluster, id);


--
-- Name: changeset_set changeset_set_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset_set
    ADD CONSTRAINT changeset_set_pkey PRIMARY KEY (cluster, changeset_id, parent);


--
-- Name: changeset_share changeset_share_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset_share
    ADD CONSTRAINT changeset_share_pkey PRIMARY KEY (cluster, changeset_id, parent, name);


--
-- Name: decision_outcome decision_outcome_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.decision_outcome
    ADD CONSTRAINT decision_outcome_pkey PRIMARY KEY (cluster, decision_id, at, outcome);


--
-- Name: decision decision_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.decision
    ADD CONSTRAINT decision_pkey PRIMARY KEY (cluster, id);


--
-- Name: demand demand_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.demand
    ADD CONSTRAINT demand_pkey PRIMARY KEY (cluster, account_key, at);


--
-- Name: fact fact_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.fact
    ADD CONSTRAINT fact_pkey PRIMARY KEY (cluster, name);


--
-- Name: failure failure_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.failure
    ADD CONSTRAINT failure_pkey PRIMARY KEY (cluster, at, phase);


--
-- Name: manager manager_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.manager
    ADD CONSTRAINT manager_pkey PRIMARY KEY (cluster, id);


--
-- Name: picture picture_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.picture
    ADD CONSTRAINT picture_pkey PRIMARY KEY (cluster);


--
-- Name: poll poll_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.poll
    ADD CONSTRAINT poll_pkey PRIMARY KEY (cluster, source);


--
-- Name: queue_job queue_job_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.queue_job
    ADD CONSTRAINT queue_job_pkey PRIMARY KEY (cluster, job_id, label);


--
-- Name: rejected_row rejected_row_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.rejected_row
    ADD CONSTRAINT rejected_row_pkey PRIMARY KEY (cluster, digest);


--
-- Name: run run_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (cluster, key);


--
-- Name: sighting sighting_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.sighting
    ADD CONSTRAINT sighting_pkey PRIMARY KEY (cluster, job_id, start_at);


--
-- Name: slurm_node slurm_node_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.slurm_node
    ADD CONSTRAINT slurm_node_pkey PRIMARY KEY (cluster, name);


--
-- Name: standing standing_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.standing
    ADD CONSTRAINT standing_pkey PRIMARY KEY (cluster, at, path);


--
-- Name: tick tick_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.tick
    ADD CONSTRAINT tick_pkey PRIMARY KEY (cluster, at);


--
-- Name: usage_hour usage_hour_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.usage_hour
    ADD CONSTRAINT usage_hour_pkey PRIMARY KEY (cluster, hour, account_key);


--
-- Name: utilisation utilisation_pkey; Type: CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.utilisation
    ADD CONSTRAINT utilisation_pkey PRIMARY KEY (cluster, key);


--
-- Name: adjustment_at; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX adjustment_at ON fairshare.adjustment USING btree (cluster, at);


--
-- Name: changeset_cancelled_once; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE UNIQUE INDEX changeset_cancelled_once ON fairshare.changeset USING btree (cluster, cancels) WHERE (cancels IS NOT NULL);


--
-- Name: changeset_share_case; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE UNIQUE INDEX changeset_share_case ON fairshare.changeset_share USING btree (cluster, changeset_id, parent, lower(name));


--
-- Name: decision_at; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX decision_at ON fairshare.decision USING btree (cluster, at);


--
-- Name: decision_preemptor; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX decision_preemptor ON fairshare.decision USING btree (cluster, preemptor_job_id);


--
-- Name: decision_victim; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX decision_victim ON fairshare.decision USING btree (cluster, victim_job_id);


--
-- Name: rejected_row_first; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX rejected_row_first ON fairshare.rejected_row USING btree (cluster, first_at);


--
-- Name: run_ended; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX run_ended ON fairshare.run USING btree (cluster, end_at) INCLUDE (start_at, account_key, milli_gpus, charged);


--
-- Name: run_job; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX run_job ON fairshare.run USING btree (cluster, job_id, start_at);


--
-- Name: run_open; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX run_open ON fairshare.run USING btree (cluster, job_id) WHERE (end_at IS NULL);


--
-- Name: run_started; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX run_started ON fairshare.run USING btree (cluster, start_at) WHERE charged;


--
-- Name: tick_passing; Type: INDEX; Schema: fairshare; Owner: -
--

CREATE INDEX tick_passing ON fairshare.tick USING btree (cluster, at) WHERE (NOT hourly);


--
-- Name: adjustment adjustment_begins; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER adjustment_begins BEFORE INSERT ON fairshare.adjustment FOR EACH ROW EXECUTE FUNCTION fairshare.adjustment_begins();


--
-- Name: adjustment append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.adjustment FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: changeset append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.changeset FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: changeset_set append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.changeset_set FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: changeset_share append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.changeset_share FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: decision_outcome append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.decision_outcome FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: manager append_only; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER append_only BEFORE DELETE OR UPDATE OR TRUNCATE ON fairshare.manager FOR EACH STATEMENT EXECUTE FUNCTION fairshare.refuse_change();


--
-- Name: changeset changeset_begins; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER changeset_begins BEFORE INSERT ON fairshare.changeset FOR EACH ROW EXECUTE FUNCTION fairshare.changeset_begins();


--
-- Name: changeset changeset_ends; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE CONSTRAINT TRIGGER changeset_ends AFTER INSERT ON fairshare.changeset DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fairshare.changeset_ends();


--
-- Name: changeset_set changeset_grows; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER changeset_grows AFTER INSERT ON fairshare.changeset_set REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION fairshare.changeset_grows();


--
-- Name: changeset_share changeset_grows; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER changeset_grows AFTER INSERT ON fairshare.changeset_share REFERENCING NEW TABLE AS added FOR EACH STATEMENT EXECUTE FUNCTION fairshare.changeset_grows();


--
-- Name: manager manager_begins; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER manager_begins BEFORE INSERT ON fairshare.manager FOR EACH ROW EXECUTE FUNCTION fairshare.manager_begins();


--
-- Name: run rolled_up_deletes; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER rolled_up_deletes AFTER DELETE ON fairshare.run REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION fairshare.roll_up();


--
-- Name: run rolled_up_inserts; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER rolled_up_inserts AFTER INSERT ON fairshare.run REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION fairshare.roll_up();


--
-- Name: run rolled_up_updates; Type: TRIGGER; Schema: fairshare; Owner: -
--

CREATE TRIGGER rolled_up_updates AFTER UPDATE ON fairshare.run REFERENCING OLD TABLE AS gone NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION fairshare.roll_up();


--
-- Name: changeset changeset_cancels; Type: FK CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset
    ADD CONSTRAINT changeset_cancels FOREIGN KEY (cluster, cancels) REFERENCES fairshare.changeset(cluster, id);


--
-- Name: changeset_set changeset_set_changeset; Type: FK CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset_set
    ADD CONSTRAINT changeset_set_changeset FOREIGN KEY (cluster, changeset_id) REFERENCES fairshare.changeset(cluster, id);


--
-- Name: changeset_share changeset_share_set; Type: FK CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.changeset_share
    ADD CONSTRAINT changeset_share_set FOREIGN KEY (cluster, changeset_id, parent) REFERENCES fairshare.changeset_set(cluster, changeset_id, parent);


--
-- Name: decision_outcome decision_outcome_decision; Type: FK CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.decision_outcome
    ADD CONSTRAINT decision_outcome_decision FOREIGN KEY (cluster, decision_id) REFERENCES fairshare.decision(cluster, id);


--
-- Name: standing standing_tick; Type: FK CONSTRAINT; Schema: fairshare; Owner: -
--

ALTER TABLE ONLY fairshare.standing
    ADD CONSTRAINT standing_tick FOREIGN KEY (cluster, at) REFERENCES fairshare.tick(cluster, at) ON DELETE CASCADE;


--
-- Name: manager administered; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY administered ON fairshare.manager FOR INSERT WITH CHECK (fairshare.is_admin());


--
-- Name: changeset; Type: ROW SECURITY; Schema: fairshare; Owner: -
--

ALTER TABLE fairshare.changeset ENABLE ROW LEVEL SECURITY;

--
-- Name: changeset_set; Type: ROW SECURITY; Schema: fairshare; Owner: -
--

ALTER TABLE fairshare.changeset_set ENABLE ROW LEVEL SECURITY;

--
-- Name: changeset_share; Type: ROW SECURITY; Schema: fairshare; Owner: -
--

ALTER TABLE fairshare.changeset_share ENABLE ROW LEVEL SECURITY;

--
-- Name: changeset managed; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY managed ON fairshare.changeset FOR INSERT WITH CHECK (fairshare.may_edit_something(cluster));


--
-- Name: changeset_set managed; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY managed ON fairshare.changeset_set FOR INSERT WITH CHECK (fairshare.may_edit(cluster, parent));


--
-- Name: changeset_share managed; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY managed ON fairshare.changeset_share FOR INSERT WITH CHECK (fairshare.may_edit(cluster, parent));


--
-- Name: manager; Type: ROW SECURITY; Schema: fairshare; Owner: -
--

ALTER TABLE fairshare.manager ENABLE ROW LEVEL SECURITY;

--
-- Name: changeset readable; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY readable ON fairshare.changeset FOR SELECT USING (true);


--
-- Name: changeset_set readable; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY readable ON fairshare.changeset_set FOR SELECT USING (true);


--
-- Name: changeset_share readable; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY readable ON fairshare.changeset_share FOR SELECT USING (true);


--
-- Name: manager readable; Type: POLICY; Schema: fairshare; Owner: -
--

CREATE POLICY readable ON fairshare.manager FOR SELECT USING (true);


--
-- PostgreSQL database dump complete
--


