"""What a person sees who types the commands, one after the other."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from slurm_fairshare import __version__
from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract
from slurm_fairshare.errors import SlurmUnreachable
from tests.cli.conftest import TREE, Site

# --- the story ------------------------------------------------------------------------------------


def test_from_an_empty_cluster_to_a_job_that_yields_and_says_why(contest: Site) -> None:
    assert "may yield now" in contest.says("queue")
    assert "over target" in contest.says("shares", "-a", "-l")
    assert "Only shown (dry run)" in contest.says("rebalance", "--dry-run")
    assert "Outcome: requeued." in contest.says("rebalance")
    listed = json.loads(contest.says("decisions", "--json"))["decisions"]
    assert [(one["victim_account"], one["preemptor"], one["outcome"]) for one in listed] == [("nlp", "3", "requeued")]
    words = contest.says("why", listed[0]["victim"])
    assert "10m past its minimum runtime of 4h" in words
    assert "It was requeued at 2026-10-08T10:10:00Z" in words
    assert f"Job {listed[0]['victim']} of dan" in contest.says("why", "3")


def test_why_finds_an_array_task_by_its_label_after_it_has_left_the_queue(contest: Site) -> None:
    contest.slurm.alter(3, lambda job: replace(job, label="9_4"))
    contest.says("rebalance")
    for asked in ("9_4", "9", "3"):
        assert "of dan (account nlp, 8 GPUs) was told to yield to it" in contest.says("why", asked)


def test_nodes_guarded_for_a_job_are_told_wherever_one_asks_about_it(contest: Site) -> None:
    contest.config = Config(cluster="lab", rebalance={"guard": True})  # type: ignore[arg-type]
    contest.says("rebalance")
    contest.after(seconds=5)
    contest.says("tick")
    assert "(Resources; n1 guarded for it)" in contest.says("queue")
    assert json.loads(contest.says("queue", "--json"))["jobs"][0]["booked"] == "n1 guarded for it"
    for command in ("why", "explain"):
        assert "Kept for it: n1 guarded for it." in contest.says(command, "3")
    assert "guarded for it while those who yield leave" in contest.says("explain", "3")


def test_a_large_job_at_the_first_rank_is_told_wherever_one_asks_about_it(contest: Site) -> None:
    contest.config = Config(cluster="lab", large={"gpus": 8, "wait": "1h"})  # type: ignore[arg-type]
    assert "first rank" not in contest.says("queue")
    contest.says("tick")
    assert "(Resources; at the first rank)" in contest.says("queue")
    for command in ("why", "explain"):
        assert "As a large job that has waited long it stands at the first rank." in contest.says(command, "3")


# --- before anything has happened -----------------------------------------------------------------


@pytest.mark.parametrize("command", [("shares",), ("queue",), ("rebalance", "--dry-run")])
def test_before_the_first_tick_the_message_says_what_to_run(site: Site, command: tuple[str, ...]) -> None:
    assert "run `slurm-fairshare tick`" in site.refuses(1, *command)


def test_without_a_tree_the_report_says_how_to_load_one(site: Site) -> None:
    assert "budget load FILE" in site.says("budget", "show")
    assert "budget load FILE" in site.refuses(2, "budget", "export")


def test_why_answers_even_then(site: Site) -> None:
    assert "No decision about job 7 is recorded" in site.says("why", "7")


# --- budgets --------------------------------------------------------------------------------------


def test_a_tree_loaded_shows_what_it_gives(site: Site) -> None:
    site.load()
    site.says("tick")
    site.after(minutes=1)
    rows = {row["budget"]: row for row in json.loads(site.says("budget", "show", "--json"))["budgets"]}
    assert rows["lab/vision"]["of_cluster"] == 0.5
    assert rows["lab/vision"]["gpuh_per_day"] == 16 * 24 * 0.5


def test_the_same_tree_again_makes_no_second_changeset(site: Site) -> None:
    site.load()
    assert "Nothing to change" in site.says("budget", "load", str(site.folder / "tree.yaml"))
    assert len(site.store.changesets()) == 1


def test_export_and_load_lose_nothing(site: Site) -> None:
    site.load()
    result = site.run("budget", "load", "-", stdin=site.says("budget", "export"))
    assert "Nothing to change" in result.stdout


def test_a_dry_run_of_load_shows_the_difference_and_saves_nothing(site: Site) -> None:
    site.load()
    (site.folder / "new.yaml").write_text(TREE.replace("share: 30", "share: 50"), encoding="utf-8")
    shown = site.says("budget", "load", "--dry-run", str(site.folder / "new.yaml"))
    assert "Would change" in shown
    assert "lab/language" in shown
    assert len(site.store.changesets()) == 1


def test_a_changeset_keeps_who_why_and_from_when(site: Site) -> None:
    (site.folder / "tree.yaml").write_text(TREE, encoding="utf-8")
    site.says("budget", "load", "--reason", "the year's plan", str(site.folder / "tree.yaml"))
    (changeset,) = site.store.changesets()
    assert (changeset.reason, changeset.effective) == ("the year's plan", site.slurm.now)
    assert changeset.author


def test_the_tree_of_the_past_stays_visible(site: Site) -> None:
    site.after(days=1)
    site.load()
    assert "There is no budget tree yet" in site.says("budget", "show", "--at", "2h")
    assert "vision" in site.says("budget", "show", "--at", "2026-10-09T06:00Z")


@pytest.mark.parametrize(
    ("text", "words"),
    [("tree:\n  a: {share: x}\n", "line 2"), (None, "cannot be read"), (b"\xff\xfe", "is not UTF-8")],
)
def test_a_bad_file_ends_with_2_and_a_message(site: Site, text: str | bytes | None, words: str) -> None:
    file = site.folder / "bad.yaml"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in site.refuses(2, "budget", "load", str(file))


# --- shares as sshare -----------------------------------------------------------------------------


def test_parsable_starts_with_sshares_columns(contest: Site) -> None:
    head = contest.says("shares", "-P").splitlines()[0]
    assert head.startswith("Account|User|RawShares|NormShares|RawUsage|EffectvUsage|FairShare|")
    head = contest.says("shares", "-lP").splitlines()[0]
    assert head.startswith("Account|User|RawShares|NormShares|RawUsage|NormUsage|EffectvUsage|FairShare|LevelFS|")


@pytest.mark.parametrize("flag", ["-n", "-h", "--noheader"])
def test_no_header_as_sshare_spells_it(contest: Site, flag: str) -> None:
    assert contest.says("shares", flag, "-P").splitlines()[0].startswith("lab|")


def test_users_are_mine_unless_all_are_asked_for(contest: Site) -> None:
    def users(*words: str) -> set[str]:
        return {line.split("|")[1] for line in contest.says("shares", "-nP", *words).splitlines()} - {""}

    assert users() == set()
    assert users("-a") == users("-u", "-1") == {"dan", "alice"}
    assert users("-u", "dan,erin") == {"dan"}
    assert contest.says("shares", "-nPU", "-a", "-o", "User").split() == ["dan", "alice"]


def test_raw_usage_is_gpu_seconds_and_an_account_prints_as_configured(contest: Site) -> None:
    assert contest.says("shares", "-nP", "-A", "nlp", "-o", "acc,rawu") == f"NLP|{16 * (4 * 3600 + 600)}\n"


def test_an_account_outside_the_tree_and_an_unknown_field_end_with_1(contest: Site) -> None:
    assert "not in the budget tree: nobody" in contest.refuses(1, "shares", "-A", "nobody")
    assert 'there is no field "Nonsense"' in contest.refuses(1, "shares", "-o", "Nonsense")


def test_an_unknown_option_ends_with_1_as_in_sshare(contest: Site) -> None:
    assert contest.run("shares", "--nonsense").exit_code == 1


def test_the_fields_are_listed_with_e(site: Site) -> None:
    assert "LevelFS" in site.says("shares", "-e")


def test_reports_ask_slurm_nothing(contest: Site) -> None:
    before = contest.slurm.calls.copy()
    for words in (("shares",), ("queue",), ("why", "1"), ("decisions",), ("budget", "show")):
        contest.says(*words)
    assert contest.slurm.calls == before


def test_old_data_is_called_stale_on_the_table_or_beside_what_programs_read(contest: Site) -> None:
    contest.after(minutes=10)
    assert contest.says("shares").startswith("STALE: these numbers are 10m old")
    result = contest.run("shares", "-P")
    assert "STALE" not in result.stdout
    assert "STALE" in result.stderr
    assert json.loads(contest.says("shares", "--json"))["stale"] is True


def test_a_narrow_screen_gets_every_line_whole(contest: Site) -> None:
    contest.columns = "80"
    for words in (("shares", "-a", "-l"), ("queue",), ("decisions",), ("budget", "show"), ("why", "3")):
        assert max(len(line) for line in contest.says(*words).splitlines()) <= 80


# --- the queue ------------------------------------------------------------------------------------


def test_the_queue_can_be_narrowed(contest: Site) -> None:
    assert len(contest.says("queue", "-nP", "-t", "PD").splitlines()) == 1
    assert len(contest.says("queue", "-nP", "-u", "dan").splitlines()) == 2
    assert contest.says("queue", "-A", "robotics", "-n") == "No job matches.\n"


# --- plan and apply -------------------------------------------------------------------------------


def test_apply_needs_to_be_run_once(site: Site) -> None:
    site.load()
    site.says("tick")
    site.after(minutes=1)
    assert "Nothing to change" in site.says("plan")
    assert "Nothing to change" in site.says("apply")


def test_before_the_first_tick_apply_sets_the_ladder_up_and_leaves_priorities(site: Site) -> None:
    site.load()
    shown = site.says("apply")
    assert "add QOS fs-4h" in shown
    assert "Priorities are left to the next tick" in shown
    assert "set Priority" not in shown
    assert "fs-4h" in site.slurm.held().qos


def test_a_dry_run_of_apply_changes_nothing(site: Site) -> None:
    site.load()
    site.says("apply", "--dry-run")
    assert site.slurm.calls["carry_out"] == 0


def test_what_does_not_match_is_named(site: Site) -> None:
    site.slurm.add_account("guests", "gina")
    site.load()
    assert "In Slurm but in nobody's budget: guests" in site.says("plan")


def test_everything_can_be_taken_out_again(site: Site) -> None:
    site.load()
    site.says("tick")
    assert "remove QOS fs-4h" in site.says("plan", "--remove")
    site.says("apply", "--remove")
    assert set(site.slurm.held().qos) == {"normal"}
    assert "Nothing to take out" in site.says("plan", "--remove")


# --- the tick -------------------------------------------------------------------------------------


def test_a_dry_tick_shows_what_it_would_push_and_records_no_tick(site: Site) -> None:
    site.load()
    assert "would change in Slurm" in site.says("tick", "--dry-run")
    assert site.slurm.calls["carry_out"] == 0
    assert site.store.last_tick() is None


def test_a_tick_tells_programs_the_same(site: Site) -> None:
    site.load()
    told = json.loads(site.says("tick", "--json"))
    assert [leaf["rank"] for leaf in told["ranking"]] == [1, 2, 3]
    assert told["pushed"] is True


def test_when_slurm_is_down_there_is_one_message_and_exit_1(site: Site) -> None:
    site.slurm.fail("runs", SlurmUnreachable("slurmdbd does not answer: is it up?"))
    assert site.refuses(1, "tick") == "slurm-fairshare: slurmdbd does not answer: is it up?\n"


def test_ticks_that_failed_since_are_told_below_the_shares(site: Site) -> None:
    site.load()
    site.says("tick")
    site.after(minutes=1)
    site.slurm.fail("runs", SlurmUnreachable("slurmdbd does not answer: is it up?"))
    site.refuses(1, "tick")
    assert "1 tick has failed, the last at 2026-10-08T06:01:00Z while it was to read accounting" in site.says("shares")


def test_only_one_may_act_at_a_time(site: Site) -> None:
    with site.store.lead():
        assert "another daemon leads" in site.refuses(1, "tick")
        assert "another daemon leads" in site.refuses(1, "rebalance")


def test_rebalance_says_why_nobody_yields(contest: Site) -> None:
    contest.slurm.submit("robotics", "carol", 8, contract=Contract())
    told = json.loads(contest.says("rebalance", "--dry-run", "--json"))
    assert {"job_id": 4, "why": "unallocated"}.items() <= told["declined"][-1].items()


def test_the_daemon_gets_what_the_settings_name(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    monkeypatch.setattr("slurm_fairshare.daemon.loop.run", lambda *parts: given.extend(parts))
    monkeypatch.setattr("slurm_fairshare.cli.steps.configure_logs", given.append)
    site.says("daemon")
    assert given == ["console", site.slurm, site.store, site.config]


# --- the rest -------------------------------------------------------------------------------------


def test_the_version_is_told(site: Site) -> None:
    assert __version__ in site.says("version")


@pytest.mark.parametrize("words", [(), ("queue",), ("budget",), ("budget", "load"), ("why",), ("tick",)])
def test_help_is_there_under_both_names(site: Site, words: tuple[str, ...]) -> None:
    assert site.says(*words, "-h") == site.says(*words, "--help")
    assert "Usage" in site.says(*words, "-h")


def test_settings_show_hides_the_password(site: Site) -> None:
    site.config = Config(database_url="postgresql://fairshare:s3cret@db/fairshare")
    for words in ((), ("-P",), ("--json",), ("--csv",)):
        shown = site.says("settings", "show", *words)
        assert "s3cret" not in shown
        assert "fairshare:***@db" in shown


def test_a_settings_file_is_named_before_or_behind_the_command(site: Site) -> None:
    file = site.folder / "site.toml"
    file.write_text('cluster = "elsewhere"\n', encoding="utf-8")
    site.config = None  # type: ignore[assignment]
    for words in (("--config", str(file), "settings", "show"), ("settings", "show", "--config", str(file))):
        assert '"elsewhere"' in site.says(*words)


def test_a_faulty_settings_file_ends_with_2_and_names_the_setting(site: Site) -> None:
    file = site.folder / "site.toml"
    file.write_text("[daemon]\nintervall = 5\n", encoding="utf-8")
    site.config = None  # type: ignore[assignment]
    assert "daemon.intervall: there is no such setting" in site.refuses(2, "settings", "show", "--config", str(file))


def test_the_plugin_comes_with_the_sites_settings(site: Site) -> None:
    site.config = Config(contract={"rungs": ["30m", "3h"]})  # type: ignore[arg-type]
    shown = site.says("plugin", "--trusted-uid", "2000")
    assert 'name = "fs-3h", seconds = 10800' in shown
    assert "trusted_uids = { 0, 2000 }" in shown


def test_a_trusted_user_this_machine_does_not_know_is_named(site: Site) -> None:
    site.config = Config(slurm={"trusted_users": ["nobody-of-that-name"]})  # type: ignore[arg-type]
    assert "--trusted-uid" in site.refuses(2, "plugin")


@pytest.mark.parametrize("job", ["x", "12.batch", "-5", "1;2"])
def test_what_is_no_job_number_is_refused(site: Site, job: str) -> None:
    assert site.run("why", "--", job).exit_code == 2


@pytest.mark.parametrize(("since", "found"), [("1d", 1), ("1m", 0), ("2026-10-08", 1), ("2026-10-08T12:00Z", 0)])
def test_decisions_are_listed_from_a_moment_or_a_length_of_time_ago(contest: Site, since: str, found: int) -> None:
    contest.says("rebalance")
    contest.after(minutes=5)
    assert len(json.loads(contest.says("decisions", "--since", since, "--json"))["decisions"]) == found


def test_a_moment_that_is_none_is_refused_with_an_example(site: Site) -> None:
    assert "write 2026-10-08" in site.run("decisions", "--since", "yesterday").stderr


def test_a_moment_without_a_zone_is_in_the_sites(site: Site) -> None:
    site.config = Config(time_zone="Asia/Tokyo")
    told = json.loads(site.says("decisions", "--since", "2026-10-08", "--json"))
    assert told["since"] == "2026-10-07T15:00:00Z"
