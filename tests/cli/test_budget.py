"""Managers at the keyboard: what they change, what they are shown, and what they are refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from slurm_fairshare.core.contract import Contract
from slurm_fairshare.core.tree import tree_at
from tests.cli.conftest import TREE, Site

REASON = ("--reason", "the board of May")


@pytest.fixture
def lab(site: Site) -> Site:
    """The tree of three teams, a tick, and 16 GPUs in service."""
    site.load()
    site.says("tick")
    site.after(minutes=1)
    return site


def effective(site: Site, **ahead: float) -> dict[str, float]:
    tree = tree_at(site.store.changesets(), site.slurm.now + timedelta(**ahead))
    return {path: round(node.effective, 4) for path, node in tree.nodes.items()}


def rows(site: Site, *words: str) -> list[dict[str, Any]]:
    told = json.loads(site.says("budget", *words, "--json"))
    return next(value for value in told.values() if isinstance(value, list))


# --- set ------------------------------------------------------------------------------------------


def test_set_replaces_the_siblings_as_a_whole_and_keeps_accounts(lab: Site) -> None:
    shown = lab.says("budget", "set", "lab", "vision=60", "language=40", *REASON)
    assert effective(lab) == {"lab": 1.0, "lab/vision": 0.6, "lab/language": 0.4}
    assert tree_at(lab.store.changesets(), lab.slurm.now).nodes["lab/language"].account == "NLP"
    for part in ("Changeset 2 by ", "retired", "50% -> 60%", "192.0 -> 230.4", "the board of May"):
        assert part in shown


def test_a_new_child_names_its_account_and_every_unit_is_shown(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=50", "language=30", "video=20:cv@lab+1.0", *REASON)
    row = next(row for row in rows(lab, "show") if row["budget"] == "lab/video")
    assert row["account"] == "cv@lab+1.0"
    assert (row["of_parent"], row["of_cluster"], row["gpuh_per_day"]) == (0.2, 0.2, pytest.approx(16 * 24 * 0.2))


def test_the_root_is_written_as_a_slash(lab: Site) -> None:
    lab.says("budget", "set", "/", "lab=3", "guests=1:guests", *REASON)
    assert effective(lab)["lab/vision"] == 0.375


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lab", "vision"), "write vision=50"),
        (("lab", "vision=50%"), "without the %"),
        (("lab", "vision=-1"), "zero or more"),
        (("lab", "vision=1e999"), "zero or more"),
        (("lab", "vision=1.2.3"), "zero or more"),
        (("lab", "video=10"), "video=10:ACCOUNT"),
        (("lab", "vision=1", "vision=2"), "differ by case only, or not at all"),
        (("lab", "vision=1", "Vision=2:x"), "differ by case only"),
        (("lab", "vision=1", "video=1:nlp", "language=1"), "account NLP is already bound|account nlp is already bound"),
        (("lab/vision", "a=1:a"), "is a leaf, bound to account vision"),
        (("lab/nowhere", "a=1:a"), "is no node"),
        (("/", "lab=1:x"), "lab has children"),
        (("lab", "a/b=1:x"), "a name has no '/'"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused_and_saves_nothing(
    lab: Site, words: tuple[str, ...], message: str
) -> None:
    import re

    assert re.search(message, lab.refuses(2, "budget", "set", *words, *REASON))
    assert len(lab.store.changesets()) == 1


def test_a_reason_is_asked_for(lab: Site) -> None:
    assert "--reason" in lab.run("budget", "set", "lab", "vision=1").stderr


def test_a_dry_run_saves_nothing(lab: Site) -> None:
    assert "Would change" in lab.says("budget", "set", "lab", "vision=60", "language=40", *REASON, "--dry-run")
    assert len(lab.store.changesets()) == 1


def test_the_same_shares_again_make_no_changeset(lab: Site) -> None:
    same = lab.says("budget", "set", "lab", "robotics=20", "vision=50", "language=30", *REASON)
    assert "Nothing to change" in same
    assert len(lab.store.changesets()) == 1


# --- later, and meanwhile -------------------------------------------------------------------------


def test_an_edit_for_later_changes_nothing_before(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=90", "language=10", *REASON, "--from", "7d")
    assert effective(lab)["lab/vision"] == 0.5
    assert effective(lab, days=8)["lab/vision"] == 0.9
    assert "Changes at 2026-10-15T06:01:00Z: the board of May" in lab.says("budget", "show")
    assert rows(lab, "log")[0]["state"] == "scheduled"
    assert "not in it: changeset 2" in lab.run("budget", "export").stderr


def test_an_edit_of_the_past_is_refused(lab: Site) -> None:
    assert "the past stays" in lab.run("budget", "set", "lab", "vision=1", *REASON, "--from", "2026-10-01").stderr


def test_an_edit_says_when_a_planned_one_replaces_it_again(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=90", "language=10", *REASON, "--from", "7d")
    shown = lab.says("budget", "set", "lab", "vision=70", "language=30", *REASON)
    assert "`slurm-fairshare budget cancel 2`" in shown


def test_an_edit_of_a_state_that_is_past_is_refused_and_told_who_changed_what(lab: Site) -> None:
    assert "last changeset 1." in lab.says("budget", "show")
    lab.says("budget", "set", "lab", "vision=60", "language=40", "--reason", "robotics ends")
    words = lab.refuses(2, "budget", "set", "lab", "vision=1", "language=1", *REASON, "--expect", "1")
    for part in ("2: ", "2026-10-08T06:01:00Z", "robotics ends", "vision 50 -> 60 (50% -> 60%)", "robotics retired"):
        assert part in words
    lab.says("budget", "set", "lab", "vision=1", "language=1", *REASON, "--expect", "2")


def test_a_planned_edit_can_be_cancelled_and_both_stay_in_the_log(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=90", "language=10", *REASON, "--from", "7d")
    lab.says("budget", "set", "lab", "vision=70", "language=30", *REASON)
    shown = lab.says("budget", "cancel", "2", "--reason", "the board of June")
    assert "90% -> 70%" in shown
    assert effective(lab, days=8)["lab/vision"] == 0.7
    assert [(row["id"], row["state"]) for row in rows(lab, "log")] == [
        (4, "cancellation"),
        (3, "done"),
        (2, "cancelled by 4"),
        (1, "done"),
    ]
    assert "is cancelled already" in lab.refuses(2, "budget", "cancel", "2", *REASON)
    assert "the past stays" in lab.refuses(2, "budget", "cancel", "1", *REASON)
    assert "itself cancels 2" in lab.refuses(2, "budget", "cancel", "4", *REASON)
    assert "no changeset 9" in lab.refuses(2, "budget", "cancel", "9", *REASON)


def test_a_cancelled_edit_does_not_bring_back_what_was_changed_after_it(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=90", "language=10", *REASON, "--from", "7d")
    lab.says("budget", "cancel", "2", *REASON)
    lab.says("budget", "set", "lab", "vision=70", "language=30", *REASON)
    assert effective(lab, days=30) == effective(lab)


# --- add, move, retire ----------------------------------------------------------------------------


def test_add_leaves_the_siblings_shares_and_binds_the_account_of_its_name(lab: Site) -> None:
    lab.says("budget", "add", "lab/video", "--share", "100", *REASON)
    leaf = tree_at(lab.store.changesets(), lab.slurm.now).nodes["lab/video"]
    assert (leaf.account, leaf.effective) == ("video", 0.5)
    assert "is there already" in lab.refuses(2, "budget", "add", "lab/video", "--share", "1", *REASON)


def test_add_makes_a_branch_of_leaves(lab: Site) -> None:
    lab.says("budget", "add", "lab/bio", "--share", "100", "--child", "fold=3:fold", "--child", "dock=1", *REASON)
    assert effective(lab)["lab/bio/fold"] == 0.375


def test_move_keeps_a_teams_past_and_share(lab: Site) -> None:
    lab.says("budget", "add", "company", "--share", "100", "--child", "sales=1:sales", *REASON)
    job = lab.slurm.submit("vision", "alice", 8, contract=Contract(3600))
    lab.slurm.start(job, "n1")
    lab.after(hours=2)
    lab.says("tick")
    before = lab.store.last_ranking()
    shown = lab.says("budget", "move", "lab/vision", "company", *REASON, "--share", "1")
    assert "moved here" in shown
    lab.says("tick")
    after = lab.store.last_ranking()
    assert before is not None
    assert after is not None
    old, new = before[1].standings["lab/vision"], after[1].standings["company/vision"]
    assert new.usage == old.usage > 0
    assert set(effective(lab)) == {"lab", "lab/language", "lab/robotics", "company", "company/sales", "company/vision"}


def test_move_carries_what_is_below(lab: Site) -> None:
    lab.says("budget", "add", "company", "--share", "100", "--child", "sales=1:sales", *REASON)
    lab.says("budget", "move", "lab", "company", "--share", "1", *REASON)
    assert effective(lab)["company/lab/vision"] == 0.25
    lab.says("budget", "move", "company/lab", "/", *REASON)
    assert effective(lab)["lab/vision"] == round(0.5 / 101, 4)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("lab", "lab"), "cycle"),
        (("lab", "lab/vision"), "cycle"),
        (("lab/vision", "lab/language"), "is a leaf"),
        (("lab/vision", "lab"), "stands below lab already"),
        (("lab/vision", "elsewhere"), "is no node"),
        (("lab/nobody", "/"), "is no node"),
        (("/", "lab"), "the root"),
        (("lab/vision", "/"), None),
    ],
)
def test_a_move_that_cannot_be_is_refused(lab: Site, words: tuple[str, str], message: str | None) -> None:
    if message is None:
        lab.says("budget", "move", *words, *REASON)
        assert "vision" in effective(lab)
    else:
        assert message in lab.refuses(2, "budget", "move", *words, *REASON)


def test_retire_keeps_the_past(lab: Site) -> None:
    lab.after(days=1)
    lab.says("budget", "retire", "lab/robotics", *REASON)
    assert effective(lab) == {"lab": 1.0, "lab/vision": 0.625, "lab/language": 0.375}
    assert "robotics" in lab.says("budget", "show", "--at", "2h")
    assert "robotics" not in lab.says("budget", "show")


def test_the_last_child_is_not_retired_without_its_parent(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=1", *REASON)
    assert "retire lab itself" in lab.refuses(2, "budget", "retire", "lab/vision", *REASON)
    lab.says("budget", "retire", "lab", *REASON)
    assert effective(lab) == {}


def test_what_stood_below_a_retired_node_does_not_come_back_with_its_name(lab: Site) -> None:
    lab.says("budget", "add", "other", "--share", "1", *REASON)
    lab.says("budget", "retire", "lab", *REASON)
    assert "has no child lab yet" in lab.refuses(2, "budget", "set", "/", "lab=1", "other=1", *REASON)


def test_managers_of_what_is_gone_are_named(lab: Site) -> None:
    lab.says("budget", "add", "bio", "--share", "1", "--child", "fold=1", *REASON)
    lab.says("budget", "grant", "bio", "anna")
    assert "budget revoke bio anna" in lab.says("budget", "retire", "bio", *REASON)
    assert "manager-of-nothing" in lab.run("budget", "check").stdout


# --- log and diff ---------------------------------------------------------------------------------


def test_the_log_says_who_when_what_and_why(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=60", "language=40", *REASON)
    told = lab.says("budget", "log")
    for part in ("2  ", "2026-10-08T06:01:00Z", "vision 50 -> 60 (50% -> 60%)", "robotics retired", "Why: the board"):
        assert part in told


def test_the_log_of_a_node_and_of_a_time(lab: Site) -> None:
    lab.says("budget", "add", "bio", "--share", "1", "--child", "fold=1", *REASON)
    lab.after(days=2)
    lab.says("budget", "set", "bio", "fold=1", "dock=1:dock", *REASON)
    assert [row["id"] for row in rows(lab, "log", "bio")] == [3, 2]
    assert [row["id"] for row in rows(lab, "log", "lab/vision")] == [1]
    assert [row["id"] for row in rows(lab, "log", "--since", "1d")] == [3]


@pytest.mark.parametrize("between", [("1", "2"), ("2",), ("1h", "now"), ("2026-10-08T06:00:30Z", "2")])
def test_diff_takes_numbers_and_times(lab: Site, between: tuple[str, ...]) -> None:
    lab.says("budget", "set", "lab", "vision=60", "language=40", *REASON)
    lab.after(minutes=30)
    if between[0] == "1h":
        lab.after(minutes=29, seconds=30)
    found = {row["budget"]: row for row in rows(lab, "diff", *between)}
    assert found["lab/vision"]["of_cluster_before"] == 0.5
    assert found["lab/vision"]["of_cluster_after"] == 0.6
    assert found["lab/vision"]["gpuh_per_day_after"] == pytest.approx(230.4)
    assert found["lab/robotics"]["change"] == "retired"
    assert "lab/vision had 50% of lab, 50% of the cluster, 192.0 GPU-hours a day" in found["lab/vision"]["words"]


def test_a_diff_of_nothing_there_says_so(lab: Site) -> None:
    assert "no changeset 7" in lab.refuses(2, "budget", "diff", "7")
    assert "write 2026-10-08" in lab.run("budget", "diff", "1", "yesterday").stderr
    assert "Nothing changes" in lab.says("budget", "diff", "now", "now")


# --- check ----------------------------------------------------------------------------------------


def kinds(site: Site, *words: str) -> dict[str, str]:
    found = json.loads(site.run("budget", "check", *words, "--json").stdout)["findings"]
    return {row["kind"]: f"{row['budget']}: {row['finding']}" for row in found}


def test_a_sound_budget_has_nothing_to_say_and_ends_with_0(lab: Site) -> None:
    assert "Nothing" in lab.says("budget", "check") or "0 errors" in lab.says("budget", "check")
    assert kinds(lab) == {}


def test_check_finds_what_may_surprise(lab: Site) -> None:
    lab.slurm.add_account("guests", "gina")
    lab.says("budget", "set", "lab", "vision=60", "language=30", "ghost=0:ghost", *REASON)
    lab.says("budget", "set", "lab", "vision=100:vision", *REASON, "--from", "30d")
    lab.says("tick")
    found = kinds(lab)
    assert set(found) == {"sum", "zero-share", "unknown-account", "unbudgeted-account", "scheduled"}
    assert "add up to 90" in found["sum"]
    assert "sacctmgr add account ghost" in found["unknown-account"]
    assert "robotics" in found["unbudgeted-account"] or "guests" in found["unbudgeted-account"]
    assert lab.run("budget", "check").exit_code == 1


def test_check_asks_slurm_when_told(lab: Site) -> None:
    lab.slurm.add_account("guests", "gina")
    assert "unbudgeted-account" not in kinds(lab)
    assert "guests" in kinds(lab, "--ask-slurm")["unbudgeted-account"]


def test_check_looks_at_a_file_before_it_is_loaded(lab: Site) -> None:
    (lab.folder / "new.yaml").write_text(TREE.replace("share: 50", "share: 0"), encoding="utf-8")
    assert "lab/vision" in kinds(lab, str(lab.folder / "new.yaml"))["zero-share"]
    (lab.folder / "bad.yaml").write_text(TREE.replace("account: NLP", "account: VISION"), encoding="utf-8")
    assert "already bound" in lab.refuses(2, "budget", "check", str(lab.folder / "bad.yaml"))


# --- preview --------------------------------------------------------------------------------------


def test_preview_shows_shares_hours_and_places_and_saves_nothing(contest: Site) -> None:
    before = contest.store.changesets()
    found = {
        row["budget"]: row for row in rows(contest, "preview", "set", "lab", "vision=1", "language=99", "robotics=0")
    }
    assert contest.store.changesets() == before
    vision, language = found["lab/vision"], found["lab/language"]
    assert (vision["of_cluster_before"], vision["of_cluster_after"]) == (0.5, 0.01)
    assert language["gpuh_per_day_after"] == pytest.approx(16 * 24 * 0.99)
    assert (vision["rank_now"], language["rank_now"]) == (2, 3)
    assert found["lab/robotics"]["rank_next"] == 3
    assert found["lab/robotics"]["rank_then"] == 3


def test_preview_takes_a_file_and_every_edit(lab: Site) -> None:
    (lab.folder / "new.yaml").write_text(TREE.replace("share: 30", "share: 50"), encoding="utf-8")
    for words in (
        (str(lab.folder / "new.yaml"),),
        ("set", "lab", "vision=60", "language=40"),
        ("add", "lab/video", "--share", "10"),
        ("move", "lab/vision", "/"),
        ("retire", "lab/vision"),
    ):
        assert "Nothing is saved" in lab.says("budget", "preview", *words)
    assert len(lab.store.changesets()) == 1
    assert "preview takes a file, or an edit" in lab.run("budget", "preview", "add", "lab/video").stderr
    assert "already bound" in lab.refuses(
        2, "budget", "preview", "add", "lab/video", "--share", "1", "--account", "nlp"
    )


def test_what_preview_says_is_what_the_tick_after_the_edit_says(contest: Site) -> None:
    edit = ("set", "lab", "vision=1", "language=99", "robotics=0")
    told = {row["account"]: row["rank_next"] for row in rows(contest, "preview", *edit) if row["account"]}
    contest.says("budget", *edit, *REASON)
    contest.says("tick")
    last = contest.store.last_ranking()
    assert last is not None
    assert {leaf.account: leaf.rank for leaf in last[1].leaves} == told


def test_preview_before_the_first_tick_says_what_is_not_known(site: Site) -> None:
    site.load()
    assert "not known before the first tick" in site.says("budget", "preview", "set", "lab", "vision=1")


# --- files ----------------------------------------------------------------------------------------


def test_export_and_load_lose_nothing_now_or_later(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=62.5", "language=37.5", "video=0.1:cv@x+y", *REASON, "--from", "7d")
    for at in ((), ("--at", "2026-10-16")):
        text = lab.run("budget", "export", *at).stdout
        start = () if not at else ("--from", "2026-10-16")
        assert "Nothing to change" in lab.run("budget", "load", "-", *start, stdin=text).stdout


def test_a_load_is_refused_on_an_older_state(lab: Site) -> None:
    lab.says("budget", "add", "lab/video", "--share", "10", *REASON)
    file = str(lab.folder / "tree.yaml")
    assert "has changed since you looked" in lab.refuses(2, "budget", "load", file, "--expect", "1")


# --- managers -------------------------------------------------------------------------------------


def test_managers_are_granted_shown_and_revoked(lab: Site) -> None:
    assert "Nobody but admins" in lab.says("budget", "managers")
    assert "anna manages what is below lab" in lab.says("budget", "grant", "lab", "anna", "--reason", "leads it")
    assert "manages lab already" in lab.says("budget", "grant", "lab", "anna")
    assert [row["manager"] for row in rows(lab, "managers", "lab/vision")] == ["anna"]
    lab.says("budget", "revoke", "lab", "anna")
    assert rows(lab, "managers") == []
    assert [row["change"] for row in rows(lab, "managers", "--all")] == ["granted", "revoked"]


def test_a_grant_of_what_is_not_there_is_refused(lab: Site) -> None:
    assert "is no node" in lab.refuses(2, "budget", "grant", "elsewhere", "anna")
    assert "is a leaf" in lab.refuses(2, "budget", "grant", "lab/vision", "anna")
    assert "they manage nothing" in lab.refuses(2, "budget", "revoke", "lab", "anna")


def test_a_narrow_screen_gets_every_line_whole(lab: Site) -> None:
    lab.columns = "80"
    lab.says("budget", "add", "bio", "--share", "1", "--child", "fold=1", *REASON)
    lab.says("budget", "set", "lab", "vision=1", *REASON, "--from", "3d")
    for words in (("log",), ("diff", "1", "2"), ("managers",), ("preview", "retire", "lab/vision"), ("check",)):
        lines = lab.run("budget", *words).stdout.splitlines()
        assert [line for line in lines if len(line) > 80 and len(line.split()) > 1] == []  # a path cannot be wrapped


# --- what went wrong elsewhere --------------------------------------------------------------------


def test_every_level_is_told_with_its_whole_path(lab: Site) -> None:
    lab.says("budget", "add", "lab/bio", "--share", "1", "--child", "fold=1", *REASON)
    lab.says("tick")
    wanted = {"lab", "lab/bio", "lab/bio/fold", "lab/vision", "lab/language", "lab/robotics"}
    assert {row["budget"] for row in rows(lab, "show")} == wanted
    assert {row["budget"] for row in json.loads(lab.says("shares", "--json"))["shares"]} == wanted


@pytest.mark.parametrize("account", ["test@biology", "a.b-c_d+e", "0123", "x" * 100, "Größe", "a b", "a:b", "a=b"])
def test_any_account_that_slurm_accepts_can_be_bound_and_comes_back_as_written(lab: Site, account: str) -> None:
    lab.says("budget", "set", "lab", "vision=1", f"new=1:{account}", *REASON)
    assert next(row for row in rows(lab, "show") if row["budget"] == "lab/new")["account"] == account
    text = lab.run("budget", "export").stdout
    assert "Nothing to change" in lab.run("budget", "load", "-", stdin=text).stdout


def test_a_retired_team_that_comes_back_has_its_past_once(lab: Site) -> None:
    job = lab.slurm.submit("vision", "alice", 8, contract=Contract(3600))
    lab.slurm.start(job, "n1")
    lab.after(hours=2)
    lab.says("tick")

    def used(path: str) -> float:
        last = lab.store.last_ranking()
        assert last is not None
        return last[1].standings[path].usage

    once = used("lab/vision")
    lab.slurm.finish(job)
    lab.says("budget", "retire", "lab/vision", *REASON)
    lab.says("tick")
    assert used("lab") == once
    lab.after(hours=1)
    lab.says("budget", "add", "lab/vision", "--share", "50", *REASON)
    lab.says("tick")
    assert used("lab/vision") == used("lab") == once


def test_an_edit_of_the_budget_takes_no_user_and_no_account_out_of_slurm(lab: Site) -> None:
    lab.says("apply")
    before = {(one.account, one.user) for one in lab.slurm.held().associations}
    lab.says("budget", "retire", "lab/vision", *REASON)
    lab.says("tick")
    lab.says("apply")
    assert {(one.account, one.user) for one in lab.slurm.held().associations} == before


def test_two_commands_at_the_same_moment_make_two_edits_in_their_order(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=1", "language=1", *REASON)
    lab.says("budget", "set", "lab", "vision=3", "language=1", *REASON)
    assert effective(lab)["lab/vision"] == 0.75


def test_a_clock_that_is_behind_does_not_put_an_edit_before_the_last(lab: Site) -> None:
    lab.says("budget", "set", "lab", "vision=1", "language=1", *REASON)
    lab.slurm.advance(-30)
    lab.says("budget", "set", "lab", "vision=3", "language=1", *REASON)
    assert effective(lab, minutes=1)["lab/vision"] == 0.75
