# ruff: noqa: S608 - the point is to write SQL by hand
"""People and programs log in to Postgres as themselves and try what they may not: Postgres itself refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.core.tree import Share, tree_at
from slurm_fairshare.errors import BudgetError, StoreError
from slurm_fairshare.store import roles
from slurm_fairshare.store.facts import managers_now
from slurm_fairshare.store.postgres import PostgresStore
from slurm_fairshare.store.roles import ADMIN, DAEMON, GROUPS, MANAGER, Readers, set_up
from slurm_fairshare.store.schema import upgrade
from slurm_fairshare.store.tables import metadata
from tests.conftest import _create, _drop
from tests.roles import LOGINS, TREE, Place, made_place
from tests.store.build import CLUSTER, batch, capacity, decision, job, picture, report, run, shares

DENIED = "42501"
"""insufficient_privilege: no right on the table, or against row-level security."""
STAYS = "23001"
"""restrict_violation: what was recorded stays."""
UNUSABLE = "23514"
"""check_violation: the tree could not be used."""
NOT_NEXT = "40001"
"""serialization_failure: not the next changeset."""
NO_COPY = "0A000"
"""Postgres copies into no table with row-level security."""


@pytest.fixture(scope="module")
def place(postgres_server: str) -> Iterator[Place]:
    with made_place(postgres_server) as made:
        yield made


# --- statements of somebody who writes SQL by hand -------------------------------------------------

NEXT = f"(select coalesce(max(id), 0) + 1 from fairshare.changeset where cluster = '{CLUSTER}')"
LAST = f"(select max(id) from fairshare.changeset where cluster = '{CLUSTER}')"


def header(members: int, at: str = "now()", number: str = NEXT, cancels: str = "null", author: str = "me") -> str:
    return (
        "insert into fairshare.changeset (cluster, id, author, reason, created_at, effective_at, members, cancels) "
        f"values ('{CLUSTER}', {number}, '{author}', 'why', now(), {at}, {members}, {cancels})"
    )


def sibling_set(parent: str, number: str = LAST) -> str:
    return f"insert into fairshare.changeset_set values ('{CLUSTER}', {number}, '{parent}')"


def share(parent: str, name: str, weight: str = "1", account: str = "null", number: str = LAST) -> str:
    return (
        "insert into fairshare.changeset_share values "
        f"('{CLUSTER}', {number}, '{parent}', '{name}', 0, {weight}, {account})"
    )


def edit(parent: str, *children: tuple[str, str, str], **more: str) -> list[str]:
    """A whole edit: a header, one sibling set, its children (name, weight, account)."""
    return [
        header(1 + len(children), **more),
        sibling_set(parent),
        *(share(parent, name, weight, account) for name, weight, account in children),
    ]


MINE = [("video", "3", "'video'"), ("faces", "1", "'faces'")]


def grant_row(path: str, role: str) -> str:
    return (
        "insert into fairshare.manager (cluster, id, path, role_name, granted, author, reason, at) "
        f"values ('{CLUSTER}', 99, '{path}', '{role}', true, 'head', 'why', now())"
    )


# --- a manager ------------------------------------------------------------------------------------


def test_a_manager_replaces_the_children_of_a_node_they_manage_and_signs_with_their_login(place: Place) -> None:
    place.do("anna", *edit("lab/vision", *MINE, author="head"))
    last = place.ask("select author, created_at, effective_at from fairshare.changeset order by id desc limit 1")
    author, created, effective = last[0]
    assert author == place.role("anna")
    assert effective == created
    assert datetime.now(UTC) - created < timedelta(minutes=5)


def test_a_manager_adds_levels_below_their_node(place: Place) -> None:
    with place.store("anna") as store:
        made = store.add_changeset(
            "head",
            "faces splits",
            datetime.now(UTC),
            {
                "lab/vision": (Share("video", 1, "video"), Share("people", 1)),
                "lab/vision/people": shares(faces=1, hands=1),
            },
        )
        assert made.author == place.role("anna")
        assert store.changesets()[-1] == made
        assert {leaf.path for leaf in tree_at(store.changesets(), made.effective).leaves} >= {"lab/vision/people/hands"}
        store.add_changeset("anna", "back", datetime.now(UTC), {**TREE_OF_VISION, "lab/vision/people": ()})


TREE_OF_VISION = {"lab/vision": TREE["lab/vision"]}


@pytest.mark.parametrize(
    ("statements", "state"),
    [
        (edit("lab", ("vision", "99", "null"), ("language", "1", "'nlp'")), DENIED),
        (edit("", ("lab", "1", "null"), ("mine", "1", "'mine'")), DENIED),
        (edit("lab/language", ("x", "1", "'x'")), DENIED),
        (edit("lab/visionary", ("x", "1", "'x'")), DENIED),
        (edit("lab/vision%", ("x", "1", "'x'")), DENIED),
        (edit("lab/Vision", ("x", "1", "'x'")), DENIED),
        # a set of one's own beside one that is not
        ([header(2), sibling_set("lab/vision"), sibling_set("lab")], DENIED),
        ([header(2), sibling_set("lab/vision"), share("lab", "robotics", "99", "'robotics'")], DENIED),
        # the past
        (edit("lab/vision", *MINE, at="now() - interval '1 day'"), DENIED),
        (edit("lab/vision", *MINE, at="'-infinity'"), DENIED),
        # another team's account, in any case: its usage and its jobs would be taken
        (edit("lab/vision", ("video", "1", "'nlp'")), UNUSABLE),
        (edit("lab/vision", ("video", "1", "'NLP'")), UNUSABLE),
        # what would stop the next tick
        (edit("lab/vision", *MINE, at="'infinity'"), UNUSABLE),
        (edit("lab/vision", *MINE, at="'9999-12-31'"), UNUSABLE),
        (edit("lab/vision", ("video", "-1", "'video'")), UNUSABLE),
        (edit("lab/vision", ("video", "'nan'", "'video'")), UNUSABLE),
        (edit("lab/vision", ("video", "'infinity'", "'video'")), UNUSABLE),
        (edit("lab/vision", ("a/b", "1", "'video'")), UNUSABLE),
        (edit("lab/vision", ("", "1", "'video'")), UNUSABLE),
        (edit("lab/vision", (" video", "1", "'video'")), UNUSABLE),
        (edit("lab/vision", ("video", "1", "''")), UNUSABLE),
        (edit("lab/vision", ("video", "1", "null")), UNUSABLE),
        (edit("lab/vision", ("video", "1", "'video'"), ("VIDEO", "1", "'faces'")), "23505"),
        (edit("lab/vision" + "/x" * 40, ("video", "1", "'video'")), UNUSABLE),
        # the children of a node that another will make one day
        (edit("lab/vision/later", ("x", "1", "'x'")), UNUSABLE),
        # nothing left below one's own node: it would be neither leaf nor branch
        ([header(1), sibling_set("lab/vision")], UNUSABLE),
        # half a changeset, or an empty one
        ([header(5), sibling_set("lab/vision"), share("lab/vision", "video", "1", "'video'")], UNUSABLE),
        ([header(0)], UNUSABLE),
        # numbers that are not the next: they would push everybody else out
        (edit("lab/vision", *MINE, number=str(2**62)), NOT_NEXT),
        ([header(1, number="1")], NOT_NEXT),
        # adding to what is recorded
        ([sibling_set("lab/vision/later", number="1")], STAYS),
        ([share("lab/vision", "more", "9", "'more'", number="1")], STAYS),
        # adding to one's own, once it is complete and was looked at
        ([*edit("lab/vision", *MINE), "set constraints all immediate", share("lab/vision", "x", "1", "'nlp'")], STAYS),
        (["set constraints all immediate", *edit("lab/vision", *MINE)], UNUSABLE),
        # history
        (["update fairshare.changeset set author = 'x'"], DENIED),
        (["update fairshare.changeset_share set weight = 9"], DENIED),
        (["delete from fairshare.changeset_share"], DENIED),
        (["delete from fairshare.changeset"], DENIED),
        (["truncate fairshare.changeset cascade"], DENIED),
        (
            [
                f"{header(1, number='1')} on conflict (cluster, id) do update set author = excluded.author",
            ],
            DENIED,
        ),
        (
            [
                "merge into fairshare.changeset_share s using (select 1) one on s.name = 'robotics' "
                "when matched then update set weight = 9"
            ],
            DENIED,
        ),
        # grants
        ([grant_row("lab", "anna")], DENIED),
        ([grant_row("", "anna")], DENIED),
        (["delete from fairshare.manager"], DENIED),
        (["update fairshare.manager set path = ''"], DENIED),
        (["insert into fairshare.manager_now values ('test', '', 'anna', 'x', 'x', now())"], "55000"),
        # roles and identity
        (["set role fairshare_admin"], DENIED),
        (["set role fairshare_daemon"], DENIED),
        (["set session authorization postgres"], DENIED),
        ([f"grant {ADMIN} to {MANAGER}"], DENIED),
        (["create role mine login"], DENIED),
        # ledger, journal, adjustments
        (["insert into fairshare.run select * from fairshare.run"], DENIED),
        (["update fairshare.run set gpu_count = 0"], DENIED),
        (["delete from fairshare.run"], DENIED),
        (["update fairshare.decision set outcome = 'x'"], DENIED),
        (["delete from fairshare.tick"], DENIED),
        (["delete from fairshare.standing"], DENIED),
        (["update fairshare.standing_now set usage = 0"], DENIED),
        (["update fairshare.capacity set installed = 0"], DENIED),
        (["insert into fairshare.fact values ('test', 'slurm settings', '1', now())"], DENIED),
        (["insert into fairshare.adjustment select * from fairshare.adjustment"], DENIED),
        (["copy fairshare.adjustment from stdin"], DENIED),
        (["copy fairshare.run from stdin"], DENIED),
        # the schema
        (["create table fairshare.mine (x int)"], DENIED),
        (["create function fairshare.may_edit(text, text) returns boolean language sql as 'select true'"], DENIED),
        (["create or replace view fairshare.manager_now as select 1"], DENIED),
        (["drop table fairshare.changeset_share"], DENIED),
        (["alter table fairshare.changeset disable row level security"], DENIED),
        (["alter table fairshare.changeset disable trigger all"], DENIED),
        (["drop policy managed on fairshare.changeset"], DENIED),
        (["drop trigger append_only on fairshare.changeset"], DENIED),
        (["alter function fairshare.may_edit(text, text) security definer"], DENIED),
        (["set session_replication_role = replica"], DENIED),
        (["update fairshare.alembic_version set version_num = '0'"], DENIED),
        # functions that triggers run as the owner
        (["select fairshare.changeset_begins()"], DENIED),
        (["select fairshare.refuse_change()"], DENIED),
        (
            [
                "create temp table t (cluster text, id bigint)",
                "create trigger x before insert on t for each row execute function fairshare.manager_begins()",
            ],
            DENIED,
        ),
        # row security is not switched off, it is an error
        (["set row_security = off", *edit("lab", ("vision", "99", "null"))], DENIED),
    ],
    ids=lambda value: value[-1][:70] if isinstance(value, list) else None,
)
def test_what_a_manager_may_not_do_is_refused(place: Place, statements: Sequence[str], state: str) -> None:
    before = place.ask("select count(*) from fairshare.changeset_share")
    assert place.refuses("anna", *statements) == state
    assert place.ask("select count(*) from fairshare.changeset_share") == before


def test_copy_into_the_budgets_is_refused(place: Place) -> None:
    with (
        psycopg.connect(place.address("anna")) as connection,
        pytest.raises(psycopg.Error) as caught,
        connection.cursor().copy("copy fairshare.changeset_share from stdin") as copy,
    ):
        copy.write_row((CLUSTER, 1, "lab", "mine", 0, 99, "mine"))
    assert caught.value.sqlstate == NO_COPY


def test_names_of_ones_own_in_front_of_ours_change_nothing(place: Place) -> None:
    """Temporary objects and the search path are anybody's: no function of ours looks there."""
    assert (
        place.refuses(
            "anna",
            "create temp table pg_roles (rolname name, oid oid)",
            "insert into pg_roles select 'fairshare_admin', oid from pg_catalog.pg_roles where rolname = session_user",
            "create temp table manager_now (cluster text, path text, role_name text)",
            f"insert into manager_now values ('{CLUSTER}', '', session_user)",
            "create function pg_temp.pg_has_role(name, oid, text) returns boolean language sql as 'select true'",
            "create function pg_temp.starts_with(text, text) returns boolean language sql as 'select true'",
            "set search_path = pg_temp, fairshare, pg_catalog",
            *edit("lab", ("vision", "99", "null"), ("language", "1", "'nlp'"), ("robotics", "1", "'robotics'")),
        )
        == DENIED
    )


def test_set_role_to_the_group_does_not_change_who_one_is(place: Place) -> None:
    lab = edit("lab", ("vision", "99", "null"), ("language", "1", "'nlp'"), ("robotics", "1", "'robotics'"))
    assert place.refuses("anna", f"set role {MANAGER}", *lab) == DENIED
    place.do("anna", f"set role {MANAGER}", *edit("lab/vision", *MINE))
    ((author,),) = place.ask("select author from fairshare.changeset order by id desc limit 1")
    assert author == place.role("anna")


def test_a_member_of_the_group_who_is_listed_nowhere_edits_nothing(place: Place) -> None:
    for parent in ("lab/language", "lab/vision", "lab", ""):
        assert place.refuses("mona", *edit(parent, *MINE)) == DENIED
    assert place.refuses("mona", header(0)) == DENIED


def test_a_manager_cancels_their_own_planned_edits_only(place: Place) -> None:
    later = datetime.now(UTC) + timedelta(days=9)
    with place.store("otto") as otto, place.store("anna") as anna:
        others = otto.add_changeset(
            "", "next year", later, {"lab": (*TREE["lab"][:2], Share("robotics", 5, "robotics"))}
        )
        mine = anna.add_changeset("", "next year", later, {"lab/vision": shares(video=2, faces=1)})
        assert place.refuses("anna", header(0, cancels=str(others.id))) == DENIED
        assert place.refuses("anna", header(0, cancels="1")) == STAYS
        with pytest.raises(BudgetError, match="do not manage the shares below lab"):
            anna.add_changeset("", "not yours", later, {}, cancels=others.id)
        anna.add_changeset("", "not yet", datetime.now(UTC), {}, cancels=mine.id)
        otto.add_changeset("", "not yet", datetime.now(UTC), {}, cancels=others.id)
        assert place.refuses("anna", header(0, cancels=str(mine.id))) in ("23505", STAYS)
        after = tree_at(otto.changesets(), later)
        assert (
            after.nodes["lab/vision/video"].weight
            == tree_at(otto.changesets(), datetime.now(UTC)).nodes["lab/vision/video"].weight
        )


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_no_older_picture_of_the_grants_is_used(place: Place, level: str) -> None:
    assert place.refuses("anna", f"set transaction isolation level {level}", *edit("lab/vision", *MINE)) == DENIED


def test_a_grant_taken_back_before_the_commit_is_no_grant(place: Place) -> None:
    mona = place.role("mona")
    with place.store("otto") as store, closing(psycopg.connect(place.address("mona"))) as connection:
        store.change_manager("lab/vision", mona, True, "", "", datetime.now(UTC))
        for statement in edit("lab/vision", *MINE):
            connection.execute(statement.encode())
        store.change_manager("lab/vision", mona, False, "", "", datetime.now(UTC))
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.commit()


def test_of_two_edits_at_once_the_second_is_not_the_next(place: Place) -> None:
    """Whoever is second waits for the first, and is told that the state has changed."""
    first, second = (psycopg.connect(place.address(name)) for name in ("anna", "otto"))
    with closing(first), closing(second), ThreadPoolExecutor(1) as pool:
        number = f"{place.ask(f'select {NEXT}')[0][0]}"
        for statement in edit("lab/vision", *MINE, number=number):
            first.execute(statement.encode())
        waiting = pool.submit(second.execute, header(2, number=number).encode())
        assert not waiting.done()
        first.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            waiting.result(30)


def test_the_message_says_what_one_manages(place: Place) -> None:
    with place.store("anna") as store, pytest.raises(BudgetError) as caught:
        store.add_changeset("", "more", datetime.now(UTC), {"lab": TREE["lab"]})
    words = str(caught.value)
    assert f"you are {place.role('anna')} here and do not manage the shares below lab" in words
    assert "you manage what is below lab/vision" in words


# --- a reader -------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", sorted(table.name for table in metadata.tables.values()))
@pytest.mark.parametrize("login", ["rita"])
def test_a_reader_reads_every_table_and_writes_none(place: Place, login: str, table: str) -> None:
    place.do(login, f"select * from fairshare.{table}")
    assert place.refuses(login, f"insert into fairshare.{table} select * from fairshare.{table}") == DENIED
    assert place.refuses(login, f"update fairshare.{table} set cluster = 'x'") == DENIED
    assert place.refuses(login, f"delete from fairshare.{table}") == DENIED
    assert place.refuses(login, f"truncate fairshare.{table} cascade") == DENIED


def test_a_reader_may_be_kept_from_peoples_jobs(place: Place) -> None:
    set_up(place.owner, Readers.BUDGETS)
    try:
        place.do("rita", "select * from fairshare.changeset_share", "select * from fairshare.standing_now")
        for hidden in ("run", "run_usage", "queue_job", "decision", "adjustment", "sighting"):
            assert place.refuses("rita", f"select * from fairshare.{hidden}") == DENIED
        place.do("anna", "select * from fairshare.run")
        upgrade(place.owner)  # leaves it so
        assert place.refuses("rita", "select * from fairshare.run") == DENIED
    finally:
        set_up(place.owner, Readers.ALL)
    place.do("rita", "select * from fairshare.run_usage")


def test_nobody_else_reads_anything(place: Place, postgres_server: str) -> None:
    guest = place.role("guest")
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password 'pw'").format(sql.Identifier(guest)))
    try:
        assert place.refuses("guest", "select * from fairshare.changeset") == DENIED
        assert place.refuses("guest", "select fairshare.is_admin()") == DENIED
    finally:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(guest)))


# --- an admin -------------------------------------------------------------------------------------


def test_an_admin_edits_any_set_but_signs_with_their_login(place: Place) -> None:
    same = [(one.name, str(one.weight), f"'{one.account}'" if one.account else "null") for one in TREE["lab"]]
    place.do("otto", *edit("lab", *same, author="somebody else"))
    ((author,),) = place.ask("select author from fairshare.changeset order by id desc limit 1")
    assert author == place.role("otto")


def test_an_admin_grants_and_revokes_and_it_holds_at_once(place: Place) -> None:
    mona = place.role("mona")
    edited = edit("lab/vision", *MINE)
    with place.store("otto") as store:
        made = store.change_manager("lab/vision", mona, True, "somebody else", "helps out", datetime.now(UTC))
        assert made.author == place.role("otto")
        place.do("mona", *edited)
        store.change_manager("lab/vision", mona, False, "", "back", datetime.now(UTC))
        assert place.refuses("mona", *edited) == DENIED
        assert ("lab/vision", mona) not in managers_now(store.manager_changes())


def test_who_manages_the_root_manages_the_whole_tree(place: Place) -> None:
    mona = place.role("mona")
    same = [(one.name, str(one.weight), f"'{one.account}'" if one.account else "null") for one in TREE["lab"]]
    with place.store("otto") as store:
        store.change_manager("", mona, True, "", "deputy", datetime.now(UTC))
        place.do("mona", *edit("lab", *same))
        store.change_manager("", mona, False, "", "back", datetime.now(UTC))


@pytest.mark.parametrize(
    "statement",
    [
        "update fairshare.changeset set author = 'x'",
        "delete from fairshare.changeset_share",
        "truncate fairshare.manager",
        "update fairshare.manager set granted = false",
        "delete from fairshare.manager",
        "insert into fairshare.run select * from fairshare.run",
        "update fairshare.run set gpu_count = 0",
        "update fairshare.decision set detail = ''",
        "insert into fairshare.decision_outcome select * from fairshare.decision_outcome",
        "insert into fairshare.capacity values ('test', 'h100', now(), 1, 0, 0, 0)",
        "delete from fairshare.tick",
        "update fairshare.standing set usage = 0",
        "delete from fairshare.adjustment",
        "update fairshare.adjustment set expires_at = now()",
        f"grant {DAEMON} to {ADMIN}",
        "alter table fairshare.run disable trigger all",
    ],
)
def test_an_admin_forges_neither_the_ledger_nor_history(place: Place, statement: str) -> None:
    assert place.refuses("otto", statement) == DENIED


def test_an_admin_cannot_edit_the_past(place: Place) -> None:
    assert place.refuses("otto", *edit("lab/vision", *MINE, at="now() - interval '1 hour'")) == DENIED


def test_an_adjustment_is_signed_by_the_admin_who_makes_it(place: Place) -> None:
    with place.store("otto") as store:
        made = store.add_adjustment("nlp", -1000, datetime.now(UTC), "somebody else", "a bad node")
    ((author,),) = place.ask(f"select author from fairshare.adjustment where id = '{made.id}'")
    assert author == place.role("otto")
    forever = f"insert into fairshare.adjustment values ('{CLUSTER}', 'x', 'a', 'a', 1, 'infinity', 'x', 'y', null)"
    assert place.refuses("otto", forever) == UNUSABLE
    assert place.refuses("anna", "insert into fairshare.adjustment select * from fairshare.adjustment") == DENIED
    assert place.refuses("dora", "insert into fairshare.adjustment select * from fairshare.adjustment") == DENIED


# --- the daemon -----------------------------------------------------------------------------------


def test_the_daemon_keeps_ledger_and_journal(place: Place) -> None:
    now = datetime.now(UTC)
    with place.store("dora") as store:
        with store.lead():
            store.record_runs(batch(run("k1", 1, 2), run("k2", 1, None)), now)
            store.record_runs(batch(run("k2", 1, 5)), now + timedelta(seconds=1))
            store.record_picture(picture(2, job(1, 0), job(2, None)), (capacity(8),))
            store.record_picture(picture(3, job(2, None)), (capacity(4),))
            store.record_tick(report(2))
            store.record_tick(report(2))
            store.decide([decision("d2", 2)])
            store.settle("d2", decision_outcome(), now, "done")
            store.record_failure(now, "plan", "why")
            store.remember("slurm settings", {}, now)
        assert store.last_tick() is not None
        assert store.changesets()


def decision_outcome() -> Any:
    from slurm_fairshare.core.decisions import Outcome

    return Outcome.REQUEUED


@pytest.mark.parametrize(
    ("statements", "state"),
    [
        (edit("lab/vision", *MINE), DENIED),
        (["delete from fairshare.changeset"], DENIED),
        ([grant_row("", "dora")], DENIED),
        (["delete from fairshare.run"], DENIED),
        (["delete from fairshare.decision"], DENIED),
        (["update fairshare.decision set rule = 'x'"], DENIED),
        (["update fairshare.decision set victim_ratio = 9"], DENIED),
        (["delete from fairshare.decision_outcome"], DENIED),
        (["update fairshare.decision_outcome set outcome = 'x'"], DENIED),
        (["truncate fairshare.tick cascade"], DENIED),
        ([f"set role {ADMIN}"], DENIED),
        (["drop table fairshare.run"], DENIED),
    ],
    ids=lambda value: value[-1][:60] if isinstance(value, list) else None,
)
def test_the_daemon_writes_no_budgets_and_takes_nothing_back(
    place: Place, statements: Sequence[str], state: str
) -> None:
    assert place.refuses("dora", *statements) == state


# --- setting up -----------------------------------------------------------------------------------


def test_setting_up_again_changes_nothing(place: Place) -> None:
    def rights() -> list[tuple[Any, ...]]:
        return place.ask(
            "select relname, relacl::text from pg_class where relnamespace = 'fairshare'::regnamespace order by 1"
        )

    before = rights()
    assert set_up(place.owner) == ()
    assert rights() == before


def test_a_table_that_a_later_migration_adds_is_readable_and_the_daemons_to_write(place: Place) -> None:
    with psycopg.connect(place.owner) as connection:
        connection.execute("create table fairshare.later (x int)")
    try:
        place.do("rita", "select * from fairshare.later")
        place.do("dora", "insert into fairshare.later values (1)", "delete from fairshare.later")
        for login in ("rita", "anna", "otto"):
            assert place.refuses(login, "insert into fairshare.later values (1)") == DENIED
    finally:
        with psycopg.connect(place.owner) as connection:
            connection.execute("drop table fairshare.later")


def test_every_function_pins_its_search_path_and_views_ask_with_the_readers_rights(place: Place) -> None:
    loose = place.ask(
        "select proname from pg_proc where pronamespace = 'fairshare'::regnamespace "
        "and (prosecdef or proname ~ '^(is_|may_|tree_|adjustment_)') "
        "and not coalesce(proconfig::text ~ 'search_path=pg_catalog, (fairshare, )?pg_temp', false)"
    )
    assert loose == []
    views = place.ask(
        "select relname from pg_class where relnamespace = 'fairshare'::regnamespace and relkind = 'v' "
        "and not coalesce('security_invoker=true' = any(reloptions), false)"
    )
    assert views == []
    public = place.ask(
        "select proname from pg_proc where pronamespace = 'fairshare'::regnamespace "
        "and has_function_privilege('public', oid, 'execute')"
    )
    assert public == []


def test_who_may_not_make_roles_is_told_what_to_run(place: Place, postgres_server: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(roles, "GROUPS", (*GROUPS, f"fairshare_{place.suffix}"))
    plain = place.role("plain")
    name = _create(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("create role {} login password 'pw'").format(sql.Identifier(plain)))
        connection.execute(sql.SQL("alter database {} owner to {}").format(sql.Identifier(name), sql.Identifier(plain)))
    address = make_conninfo(postgres_server, dbname=name, user=plain, password="pw")
    try:
        upgrade(address)
        with pytest.raises(StoreError, match=f"(?s)CREATEROLE.*create role fairshare_{place.suffix} nologin;"):
            set_up(address)
        monkeypatch.setattr(roles, "GROUPS", GROUPS)
        assert set_up(address) == ()  # somebody has made them
    finally:
        _drop(postgres_server, name)
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(sql.SQL("drop role {}").format(sql.Identifier(plain)))


def test_a_role_of_that_name_that_may_log_in_is_not_taken_for_ours(place: Place, monkeypatch: Any) -> None:
    monkeypatch.setattr(roles, "GROUPS", (place.role("rita"),))
    with pytest.raises(StoreError, match="is not ours"):
        set_up(place.owner)


def test_the_owner_signs_as_told(place: Place) -> None:
    """Where a site has no roles everybody logs in as the owner, and the command line says who it was."""
    with PostgresStore(place.owner, CLUSTER) as store:
        assert store.login() is None
        assert store.add_changeset("dan", "again", datetime.now(UTC), TREE_OF_VISION).author == "dan"
    with place.store("anna") as store:
        assert store.login() == place.role("anna")


def test_names_that_could_not_manage_are_found(place: Place) -> None:
    names = [place.role(login) for login in LOGINS] + ["no such role"]
    with place.store("rita") as store:
        assert store.cannot_manage(names) == (place.role("rita"), place.role("dora"), "no such role")
