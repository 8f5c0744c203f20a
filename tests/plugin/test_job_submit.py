"""job_submit.lua in every Lua a Slurm may link: what a submit becomes, and what a change may do."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.contract import Contract, DebugLane, Ladder, Priority, admit, pinned, read_pinned
from slurm_fairshare.errors import ConfigError, ContractError
from slurm_fairshare.slurm.plugin import PluginSettings, packaged, quote, render
from tests.contract_cases import CASES, Case
from tests.plugin.slurmctld import (
    ACCOUNTING_POLICY,
    ERROR,
    INFINITE,
    INVALID_QOS,
    INVALID_TIME_LIMIT,
    NOT_SUPPORTED,
    RUNNING,
    SUCCESS,
    Outcome,
    Slurmctld,
)

LUAS = ("lua51", "lua53", "lua54")
LADDER = Ladder.default()
FOUR_HOURS = {"admin_comment": pinned(Contract(14_400, True)), "qos": "fs-4h", "time_limit": 600}


@cache
def slurmctld(lua: str, settings: PluginSettings | None = None) -> Slurmctld:
    return Slurmctld(lua, settings or PluginSettings())


@pytest.fixture(params=LUAS)
def ctld(request: pytest.FixtureRequest) -> Slurmctld:
    return slurmctld(request.param)


@pytest.fixture(params=LUAS)
def lua(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def assert_refused(outcome: Outcome, code: int, *words: str) -> None:
    assert outcome.code == code
    assert outcome.written == {}
    assert len(outcome.told) == 1
    for word in words:
        assert word in outcome.text


def minutes(seconds: int | None) -> dict[str, int]:
    return {} if seconds is None else {"time_limit": seconds // 60}


# --- the same grammar as the Python reader ----------------------------------------------------------


def python_says(comment: str, time_limit: int | None) -> tuple[Contract | None, str]:
    try:
        return admit(comment, LADDER, Contract(), time_limit), ""
    except ContractError as refusal:
        return None, f"fairshare: {refusal}"


def assert_lua_agrees(ctld: Slurmctld, comment: str, time_limit: int | None) -> None:
    contract, message = python_says(comment, time_limit)
    outcome = ctld.submit(comment, requeue=1, **minutes(time_limit))
    if contract is None:
        assert outcome.told == [message]
        assert outcome.code != SUCCESS
    else:
        assert (outcome.code, outcome.pin) == (SUCCESS, pinned(contract))
        # no GPU is asked for, so that the debug lane takes every short job
        assert outcome.written["qos"] == LADDER.for_min_runtime(contract.min_runtime).name
        assert outcome.written["site_factor"] == contract.priority.site_factor


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_of_the_table(ctld: Slurmctld, case: Case) -> None:
    assert_lua_agrees(ctld, case.comment, case.time_limit)


digits = st.text("0123456789", min_size=0, max_size=10)
time_texts = st.lists(
    st.one_of(digits, st.sampled_from([":", "-", "d", "h", "m", "s", "H", ".", "+"])), max_size=8
).map("".join)
keys = st.sampled_from(
    [
        "min_runtime",
        "minruntime",
        "min-runtime",
        "MIN_RUNTIME",
        "minruntme",
        "resumable",
        "resumeable",
        "priority",
        "prio",
        "notice",
        "exp",
    ]
)
values = st.one_of(
    time_texts,
    st.sampled_from(
        ["yes", "no", "true", "high", "low", "normal", "urgent", "USR1", "SIGTERM", "none", "4h", "30", "1-12"]
    ),
)
pairs = st.tuples(keys, st.sampled_from(["=", "=", "=", " = ", ":"]), values).map("".join)
comments = st.lists(
    st.tuples(st.one_of(pairs, st.text(max_size=12)), st.sampled_from(" ,;\t|")).map("".join), max_size=5
).map("".join)
# Slurm hands over C strings
c_strings = comments.map(lambda text: text.replace("\0", "")).filter(
    lambda text: not any("\ud800" <= letter <= "\udfff" for letter in text)
)


@pytest.mark.parametrize("lua", LUAS)
@given(text=time_texts)
def test_any_duration_is_read_alike(lua: str, text: str) -> None:
    assert_lua_agrees(slurmctld(lua), f"min_runtime={text}", None)


@pytest.mark.parametrize("lua", LUAS)
@given(text=c_strings, time_limit=st.one_of(st.none(), st.integers(1, 600).map(lambda amount: amount * 60)))
def test_any_comment_is_read_alike(lua: str, text: str, time_limit: int | None) -> None:
    assert_lua_agrees(slurmctld(lua), text, time_limit)


key_letters = st.text("minrutesablpoyc_-", min_size=3, max_size=14)


@pytest.mark.parametrize("lua", LUAS)
@given(key=key_letters)
def test_near_misses_are_seen_alike(lua: str, key: str) -> None:
    assert_lua_agrees(slurmctld(lua), f"{key}=4h", None)


# --- what the user is told --------------------------------------------------------------------------


def test_no_comment_runs_unallocated_and_says_what_to_write(ctld: Slurmctld) -> None:
    outcome = ctld.submit()
    assert outcome.written["qos"] == "fs-unallocated"
    assert outcome.pin == "fairshare min_runtime=0 resumable=no priority=normal"
    assert "unallocated, free, may be stopped at any time" in outcome.told[0]
    assert 'write --comment="min_runtime=4h"' in outcome.told[1]
    assert len(outcome.told) == 2


def test_unallocated_on_purpose_is_not_lectured(ctld: Slurmctld) -> None:
    assert len(ctld.submit("min_runtime=0").told) == 1


def test_a_contract_is_told_in_one_line(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=90m resumable=yes notice=USR1")
    assert outcome.told == [
        "fairshare: contract min_runtime=1h30m resumable=yes priority=normal notice=USR1: "
        "protected for 1h30m, charged (QOS fs-2h)"
    ]
    assert outcome.pin == "fairshare min_runtime=5400 resumable=yes priority=normal notice=USR1"


def test_a_message_with_a_percent_sign_is_no_format(ctld: Slurmctld) -> None:
    assert '"%s%d"' in ctld.submit("min_runtime=%s%d").text


@pytest.mark.parametrize(("priority", "factor"), [("low", 0), ("normal", 20_000), ("high", 40_000)])
def test_the_in_team_priority_is_a_site_factor(ctld: Slurmctld, priority: str, factor: int) -> None:
    assert ctld.submit(f"priority={priority}").written["site_factor"] == factor


def test_over_the_cap_names_the_cap(ctld: Slurmctld) -> None:
    assert_refused(ctld.submit("min_runtime=9h"), INVALID_TIME_LIMIT, "9h", "cap of 8h")


def test_a_job_without_gpus_has_a_contract_like_any_other(ctld: Slurmctld) -> None:
    assert ctld.submit("min_runtime=1h").written["qos"] == "fs-1h"


# --- time limits ------------------------------------------------------------------------------------


def test_the_partition_s_default_limit_counts_where_the_job_names_none(lua: str) -> None:
    ctld = Slurmctld(lua, partitions={"gpu": {"flag_default": 1, "default_time": 60, "max_time": 600}})
    assert_refused(ctld.submit("min_runtime=2h"), INVALID_TIME_LIMIT, "time limit of 1h")
    assert ctld.submit("min_runtime=2h", time_limit=240).code == SUCCESS


def test_the_partition_s_maximum_counts_where_it_has_no_default(lua: str) -> None:
    ctld = Slurmctld(lua, partitions={"gpu": {"flag_default": 1, "max_time": 60}})
    assert_refused(ctld.submit("min_runtime=2h"), INVALID_TIME_LIMIT, "time limit of 1h")


def test_of_several_partitions_the_shortest_counts(lua: str) -> None:
    ctld = Slurmctld(lua, partitions={"a": {"max_time": 600}, "b": {"max_time": 60}, "c": {}})
    assert_refused(ctld.submit("min_runtime=2h", partition="a,b"), INVALID_TIME_LIMIT, "limit of 1h")
    assert ctld.submit("min_runtime=2h", partition="a,c").code == SUCCESS


def test_an_unlimited_job_has_no_limit_to_break(ctld: Slurmctld) -> None:
    assert ctld.submit("min_runtime=8h", time_limit=INFINITE).code == SUCCESS


def test_a_partition_nobody_knows_is_slurm_s_to_refuse(ctld: Slurmctld) -> None:
    assert ctld.submit("min_runtime=1h", partition="nowhere").code == SUCCESS


def test_time_min_may_not_undercut_the_minimum(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=2h", time_limit=240, time_min=60)
    assert_refused(outcome, INVALID_TIME_LIMIT, "--time-min=1:00:00", "write --time-min=2:00:00")
    assert ctld.submit(time_limit=240, time_min=1).code == SUCCESS


def test_a_site_s_default_yields_to_a_short_job(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(default_min_runtime=7200))
    assert ctld.submit(time_limit=600).written["qos"] == "fs-2h"
    outcome = ctld.submit(time_limit=10)
    assert (outcome.written["qos"], len(outcome.told)) == ("fs-15m", 1)
    assert "min_runtime=600 " in outcome.pin


# --- QOS --------------------------------------------------------------------------------------------


def test_naming_a_rung_declares_its_minimum(ctld: Slurmctld) -> None:
    outcome = ctld.submit("resumable=yes", qos="FS-4h")
    assert outcome.pin == "fairshare min_runtime=14400 resumable=yes priority=normal"
    assert outcome.written["qos"] == "fs-4h"


def test_naming_unallocated_is_a_choice(ctld: Slurmctld) -> None:
    outcome = ctld.submit(qos="fs-unallocated")
    assert (outcome.written["qos"], len(outcome.told)) == ("fs-unallocated", 1)


def test_a_rung_and_a_comment_that_agree(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=3h", qos="fs-4h")
    assert "min_runtime=10800" in outcome.pin


@pytest.mark.parametrize("qos", ["fs-8h", "fs-1h", "fs-unallocated"])
def test_a_rung_and_a_comment_that_disagree_are_refused(ctld: Slurmctld, qos: str) -> None:
    assert_refused(ctld.submit("min_runtime=3h", qos=qos), INVALID_QOS, qos, "min_runtime=3h", "fs-4h")


def test_a_rung_longer_than_the_job_is_refused(ctld: Slurmctld) -> None:
    assert_refused(ctld.submit(qos="fs-8h", time_limit=60), INVALID_TIME_LIMIT, "time limit of 1h")


@pytest.mark.parametrize("qos", ["normal", "fs-3h", "normal,fs-4h", "fs-1h,fs-4h"])
def test_a_qos_outside_the_ladder_is_refused_with_words(ctld: Slurmctld, qos: str) -> None:
    assert_refused(ctld.submit(qos=qos), INVALID_QOS, qos, 'write --comment="min_runtime=4h"')


def test_a_qos_the_site_lets_users_name(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(other_qos=("Interactive",)))
    outcome = ctld.submit("priority=high", qos="interactive")
    assert outcome.code == SUCCESS
    assert "qos" not in outcome.written
    assert outcome.pin == "fairshare min_runtime=0 resumable=no priority=high"
    assert "outside the ladder" in outcome.text
    assert_refused(ctld.submit("min_runtime=1h", qos="interactive"), INVALID_QOS, "leave one of them out")


# --- the debug lane ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "qos"),
    [
        ({}, "fs-15m"),
        ({"tres_per_job": "gres:gpu:8"}, "fs-15m"),
        ({"tres_per_job": "gres/gpu:9"}, "fs-1h"),
        ({"tres_per_job": "gres/gpu:h100:4,gres/gpu:a100:4"}, "fs-15m"),
        ({"tres_per_job": "gres/gpu:h100:4,gres/gpu:a100:5"}, "fs-1h"),
        ({"tres_per_node": "gres:gpu:h100:8"}, "fs-15m"),
        ({"tres_per_node": "gres/gpu:h100:8(S:0-1)"}, "fs-15m"),
        ({"tres_per_node": "gres/gpu:8", "min_nodes": 1, "max_nodes": 1, "num_tasks": 8}, "fs-15m"),
        ({"tres_per_node": "gres/gpu:8", "min_nodes": 2, "max_nodes": 2}, "fs-1h"),
        ({"tres_per_node": "gres/gpu:4", "min_nodes": 1, "max_nodes": 4}, "fs-1h"),
        ({"tres_per_node": "gres/gpu:4", "num_tasks": 4}, "fs-1h"),
        ({"tres_per_node": "gres/gpu:2", "num_tasks": 4}, "fs-15m"),
        ({"tres_per_node": "gres:gpu", "min_nodes": 8, "max_nodes": 8}, "fs-15m"),
        ({"tres_per_node": "gpu=3,license/x=40"}, "fs-15m"),
        ({"tres_per_node": "gres/shard:40"}, "fs-15m"),
        ({"tres_per_task": "gres/gpu:1", "num_tasks": 8}, "fs-15m"),
        ({"tres_per_task": "cpu=4,gres/gpu=2", "num_tasks": 8}, "fs-1h"),
        ({"tres_per_task": "gres:gpu:1", "min_nodes": 2, "max_nodes": 2, "ntasks_per_node": 8}, "fs-1h"),
        ({"tres_per_socket": "gres:gpu:2", "sockets_per_node": 2}, "fs-15m"),
        ({"tres_per_socket": "gres:gpu:1"}, "fs-1h"),
        ({"tres_per_node": "gres/gpu:1k"}, "fs-1h"),
        ({"ntasks_per_tres": 1, "num_tasks": 9}, "fs-1h"),
        ({"ntasks_per_tres": 2, "num_tasks": 9}, "fs-15m"),
        ({"ntasks_per_tres": 2}, "fs-1h"),
        ({"tres_per_job": "gres/gpu:8", "tres_per_node": "gres/gpu:4", "max_nodes": 4}, "fs-15m"),
        ({"tres_per_job": "gres/gpu:1", "shared": 0}, "fs-1h"),
    ],
)
def test_only_small_jobs_are_debug_jobs(ctld: Slurmctld, request_: dict[str, Any], qos: str) -> None:
    outcome = ctld.submit("min_runtime=10m", **request_)
    assert outcome.written["qos"] == qos
    assert "min_runtime=600 " in outcome.pin
    assert ("no debug job" in outcome.text) == (qos == "fs-1h")


def test_a_partition_that_gives_whole_nodes_has_no_debug_lane(lua: str) -> None:
    ctld = Slurmctld(lua, partitions={"gpu": {"flag_default": 1, "max_share": 0}})
    assert ctld.submit("min_runtime=10m", tres_per_job="gres/gpu:1").written["qos"] == "fs-1h"


def test_a_large_job_that_names_the_debug_rung_is_moved_and_told(ctld: Slurmctld) -> None:
    outcome = ctld.submit(qos="fs-15m", tres_per_job="gres/gpu:16")
    assert outcome.written["qos"] == "fs-1h"
    assert "with 16 GPUs it is no debug job" in outcome.text


def test_without_a_lane_the_rung_is_like_any_other(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(debug=None))
    assert ctld.submit("min_runtime=10m", tres_per_job="gres/gpu:64").written["qos"] == "fs-15m"


def test_a_ladder_of_debug_rungs_only_keeps_its_jobs(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(ladder=Ladder.of([600, 900])))
    assert ctld.submit("min_runtime=5m", tres_per_job="gres/gpu:64").written["qos"] == "fs-10m"


# --- requeue, interactive jobs, arrays and components -----------------------------------------------


def test_a_resumable_job_is_made_requeueable(ctld: Slurmctld) -> None:
    assert ctld.submit("min_runtime=1h resumable=yes").written["requeue"] == 1


def test_resumable_and_no_requeue_are_refused(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=1h resumable=yes", requeue=0)
    assert_refused(outcome, NOT_SUPPORTED, "--no-requeue", "leave one of them out")


@pytest.mark.parametrize("fields", [{}, {"requeue": 0}, {"requeue": 1}])
def test_a_protected_job_that_is_not_resumable_keeps_its_flag(ctld: Slurmctld, fields: dict[str, int]) -> None:
    assert "requeue" not in ctld.submit("min_runtime=1h resumable=no", **fields).written


def test_an_unallocated_job_is_requeueable_unless_its_owner_said_no(ctld: Slurmctld) -> None:
    assert ctld.submit().written["requeue"] == 1
    assert "requeue" not in ctld.submit(requeue=0).written
    assert "requeue" not in ctld.submit("resumable=no").written


def test_an_interactive_job_is_told_that_its_session_can_be_lost(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=1h", script=None)
    assert "cannot be requeued" in outcome.told[-1]
    assert "session is lost" in outcome.told[-1]
    assert "requeue" not in outcome.written


def test_an_interactive_job_cannot_be_resumable(ctld: Slurmctld) -> None:
    assert_refused(ctld.submit("resumable=yes", script=None), NOT_SUPPORTED, "leave it out")


def test_only_the_first_component_of_a_batch_job_has_the_script(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=1h resumable=yes", script=None, het_job_offset=1)
    assert (outcome.code, outcome.written["requeue"]) == (SUCCESS, 1)
    assert "interactive" not in outcome.text
    assert "interactive" in ctld.submit("min_runtime=1h", script=None, het_job_offset=0).text


def test_an_array_has_one_contract(ctld: Slurmctld) -> None:
    assert ctld.submit("min_runtime=1h", array_inx="0-99%5").written["qos"] == "fs-1h"


# --- who is under contract --------------------------------------------------------------------------


def test_exempt_accounts_pass_untouched(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(exempt_accounts=("Ops",)))
    outcome = ctld.submit("min_runtime=nonsense", account="OPS", qos="normal")
    assert (outcome.code, outcome.written, outcome.told) == (SUCCESS, {}, [])
    assert ctld.submit(default_account="ops").written == {}
    assert ctld.submit(account="vision", default_account="ops").written != {}


@pytest.mark.parametrize("default_qos", ["normal", None])
def test_without_a_word_a_job_in_an_account_without_budget_stays_where_it_was(
    lua: str, default_qos: str | None
) -> None:
    ctld = Slurmctld(lua)
    outcome = ctld.submit("resumable=yes", default_qos=default_qos)
    assert "qos" not in outcome.written
    assert outcome.pin == "fairshare min_runtime=0 resumable=yes priority=normal"
    assert "no budget" in outcome.text
    for declared in ({"comment": "min_runtime=1h"}, {"comment": "min_runtime=0"}, {"qos": "fs-15m"}):
        assert "qos" in ctld.submit(default_qos=default_qos, **declared).written


def test_a_strict_site_puts_every_job_on_the_ladder(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(strict=True))
    assert ctld.submit(default_qos="normal").written["qos"] == "fs-unallocated"


def test_a_default_on_a_rung_is_not_a_declaration(ctld: Slurmctld) -> None:
    assert ctld.submit(default_qos="fs-8h").written["qos"] == "fs-unallocated"


def test_only_the_partitions_named_are_under_contract(lua: str) -> None:
    parts = {"gpu": {}, "cpu": {"flag_default": 1}, "big": {}}
    ctld = Slurmctld(lua, PluginSettings(partitions=("gpu", "big")), partitions=parts)
    assert ctld.submit(qos="normal").written == {}
    assert ctld.submit(partition="cpu").written == {}
    assert ctld.submit(partition="gpu").written["qos"] == "fs-unallocated"
    assert ctld.submit(partition="cpu,big").written["qos"] == "fs-unallocated"


def test_an_administrator_s_own_words_stay_behind_the_pin(ctld: Slurmctld) -> None:
    outcome = ctld.submit("min_runtime=1h", admin_comment="ticket 12")
    assert outcome.pin == "fairshare min_runtime=3600 resumable=no priority=normal; ticket 12"
    assert read_pinned(outcome.pin) == Contract(3600)


# --- changes by the owner ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", [0, RUNNING, 0x8000 + RUNNING])
@pytest.mark.parametrize("comment", ["", "see ticket 12", "min_runtime=4h", "resumable=yes min_runtime=240"])
def test_a_comment_that_changes_no_contract_is_left_alone(ctld: Slurmctld, state: int, comment: str) -> None:
    outcome = ctld.modify({**FOUR_HOURS, "job_state": state}, comment=comment)
    assert (outcome.code, outcome.written, outcome.told) == (SUCCESS, {}, [])


@pytest.mark.parametrize("state", [0, RUNNING])
@pytest.mark.parametrize(
    ("comment", "held"),
    [
        ("min_runtime=8h", "min_runtime=4h"),
        ("min_runtime=0", "min_runtime=4h"),
        ("resumable=no", "resumable=yes"),
        ("min_runtime=4h priority=high", "priority=normal"),
        ("notice=USR1", "notice=none"),
    ],
)
def test_a_comment_cannot_change_the_contract(ctld: Slurmctld, state: int, comment: str, held: str) -> None:
    outcome = ctld.modify({**FOUR_HOURS, "job_state": state}, comment=comment)
    assert_refused(outcome, ACCOUNTING_POLICY, "fixed when the job is submitted", held, "submit it again")


def test_a_comment_nobody_can_read_is_refused_as_at_submit(ctld: Slurmctld) -> None:
    assert_refused(ctld.modify(FOUR_HOURS, comment="minruntime=8h"), ACCOUNTING_POLICY, "min_runtime=8h")


@pytest.mark.parametrize("qos", ["fs-8h", "fs-unallocated", "normal", "fs-4h,fs-8h", ""])
def test_the_qos_cannot_be_changed(ctld: Slurmctld, qos: str) -> None:
    assert_refused(ctld.modify(FOUR_HOURS, qos=qos), INVALID_QOS, "follows from the contract")


def test_the_same_qos_is_no_change(ctld: Slurmctld) -> None:
    assert ctld.modify(FOUR_HOURS, qos="FS-4H").code == SUCCESS


def test_a_job_without_a_pin_cannot_be_lifted_to_a_rung(ctld: Slurmctld) -> None:
    for record in ({"qos": "normal"}, {"qos": "normal", "admin_comment": "fairshare garbage"}):
        assert_refused(ctld.modify(record, qos="fs-8h"), INVALID_QOS, "submit it again")
        assert_refused(ctld.modify(record, comment="min_runtime=4h"), ACCOUNTING_POLICY, "no contract")


def test_the_time_limit_may_not_fall_below_the_minimum(ctld: Slurmctld) -> None:
    assert_refused(ctld.modify(FOUR_HOURS, time_limit=60), INVALID_TIME_LIMIT, "limit of 1h", "min_runtime=4h")
    assert_refused(ctld.modify(FOUR_HOURS, time_min=60), INVALID_TIME_LIMIT, "--time-min=1:00:00")
    assert ctld.modify(FOUR_HOURS, time_limit=240).code == SUCCESS
    assert ctld.modify(FOUR_HOURS, time_limit=INFINITE).code == SUCCESS


def test_a_resumable_job_stays_requeueable(ctld: Slurmctld) -> None:
    assert_refused(ctld.modify(FOUR_HOURS, requeue=0), NOT_SUPPORTED, "must stay requeueable")
    plain = {"admin_comment": pinned(Contract(3600)), "qos": "fs-1h"}
    assert ctld.modify(plain, requeue=0).code == SUCCESS


def test_words_of_the_rebalancer_do_not_hide_the_pin(ctld: Slurmctld) -> None:
    record = {**FOUR_HOURS, "admin_comment": f"{FOUR_HOURS['admin_comment']}; stopped for job 12: ratio 0.8"}
    assert_refused(ctld.modify(record, comment="min_runtime=8h"), ACCOUNTING_POLICY, "min_runtime=4h")


def test_other_changes_pass(ctld: Slurmctld) -> None:
    assert ctld.modify(FOUR_HOURS, name="better name", nice=100, partition="gpu").code == SUCCESS


def test_a_job_let_in_without_a_contract_cannot_move_to_where_one_is_needed(lua: str) -> None:
    parts = {"gpu": {}, "cpu": {"flag_default": 1}}
    settings = PluginSettings(partitions=("gpu",), exempt_accounts=("ops",))
    ctld = Slurmctld(lua, settings, partitions=parts)
    free = {"partition": "cpu", "qos": "normal"}
    assert_refused(ctld.modify(free, partition="gpu"), ACCOUNTING_POLICY, "need a contract")
    assert_refused(ctld.modify(free, partition="cpu,gpu"), ACCOUNTING_POLICY, "need a contract")
    assert ctld.modify(free, comment="min_runtime=x", qos="other").code == SUCCESS
    exempt = {"account": "ops", "partition": "gpu", "qos": "normal"}
    assert_refused(ctld.modify(exempt, account="vision"), ACCOUNTING_POLICY, "need a contract")
    assert ctld.modify(exempt, partition="cpu").code == SUCCESS


# --- changes by those who are trusted ---------------------------------------------------------------


def test_the_daemon_s_own_changes_pass_at_once(ctld: Slurmctld) -> None:
    outcome = ctld.modify(FOUR_HOURS, uid=0, qos="fs-8h", admin_comment="x", time_limit=1, requeue=0)
    assert (outcome.code, outcome.written, outcome.told) == (SUCCESS, {}, [])


def test_an_administrator_s_comment_on_a_pending_job_is_a_new_contract(ctld: Slurmctld) -> None:
    outcome = ctld.modify(FOUR_HOURS, uid=0, comment="min_runtime=8h priority=high")
    assert outcome.written == {
        "admin_comment": "fairshare min_runtime=28800 resumable=no priority=high",
        "qos": "fs-8h",
        "site_factor": 40_000,
    }


def test_an_administrator_s_contract_keeps_to_the_rules_too(ctld: Slurmctld) -> None:
    assert_refused(ctld.modify(FOUR_HOURS, uid=0, comment="min_runtime=9h"), INVALID_TIME_LIMIT, "cap of 8h")
    outcome = ctld.modify(FOUR_HOURS, uid=0, comment="min_runtime=2h", time_limit=60)
    assert_refused(outcome, INVALID_TIME_LIMIT, "time limit of 1h")
    assert ctld.modify(FOUR_HOURS, uid=0, comment="min_runtime=10m").written["qos"] == "fs-15m"
    large = {**FOUR_HOURS, "tres_fmt_req_str": "cpu=1,gres/gpu=16,gres/gpu:h100=16"}
    assert ctld.modify(large, uid=0, comment="min_runtime=10m").written["qos"] == "fs-1h"


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        ({"job_state": RUNNING}, {"comment": "min_runtime=8h"}),
        ({}, {"comment": "thanks"}),
        ({}, {"comment": "min_runtime=8h", "admin_comment": "mine"}),
        ({}, {"comment": "min_runtime=8h", "qos": "fs-1h"}),
    ],
)
def test_what_else_an_administrator_writes_stays_as_written(
    ctld: Slurmctld, record: dict[str, Any], fields: dict[str, Any]
) -> None:
    outcome = ctld.modify({**FOUR_HOURS, **record}, uid=0, **fields)
    assert (outcome.code, outcome.written) == (SUCCESS, {})


def test_trust_is_a_setting(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(trusted_uids=(0, 2000)))
    assert ctld.modify(FOUR_HOURS, uid=2000, qos="fs-8h").code == SUCCESS
    assert ctld.modify(FOUR_HOURS, uid=2002, qos="fs-8h").code == INVALID_QOS


# --- faults and releases ----------------------------------------------------------------------------


def broken(lua: str) -> Slurmctld:
    """A plugin whose settings break it in the middle of a decision: no rung covers what the cap allows."""
    return Slurmctld(lua, text=packaged().replace("cap = 28800", "cap = 99999999"))


@pytest.mark.parametrize("fields", [{}, {"qos": "fs-8h"}])
def test_a_fault_at_submit_admits_the_job_unallocated_and_says_so(lua: str, fields: dict[str, str]) -> None:
    outcome = broken(lua).submit("min_runtime=9h priority=high", **fields)
    assert outcome.code == SUCCESS
    assert outcome.written["qos"] == "fs-unallocated"
    assert outcome.pin == "fairshare min_runtime=0 resumable=no priority=normal"
    assert "fault in the plugin" in outcome.text
    assert "runs unallocated" in outcome.text
    assert len(outcome.logged) == 1


def test_a_fault_while_telling_loses_no_job(lua: str) -> None:
    ctld = Slurmctld(lua)
    ctld.break_output()
    assert ctld.submit("min_runtime=1h").written["qos"] == "fs-unallocated"


def test_a_fault_in_a_change_refuses_the_change(lua: str) -> None:
    outcome = broken(lua).modify({"job_state": "not a number"}, uid=0, comment="min_runtime=9h")
    assert (outcome.code, outcome.written) == (ERROR, {})
    assert "could not be checked" in outcome.text
    assert len(outcome.logged) == 1


def test_a_release_with_few_codes_still_refuses(lua: str) -> None:
    ctld = Slurmctld(lua, names_all_codes=False)
    assert ctld.submit(qos="normal").code == ACCOUNTING_POLICY
    assert ctld.modify(FOUR_HOURS, requeue=0).code == ACCOUNTING_POLICY


# --- the file a site gets ---------------------------------------------------------------------------


def test_the_packaged_defaults_are_the_product_s() -> None:
    assert render(PluginSettings()) == packaged()


def test_settings_reach_the_plugin(lua: str) -> None:
    settings = PluginSettings(
        ladder=Ladder.of([1800, 10_800], prefix="gpu-"), debug=DebugLane(max_gpus=2, max_min_runtime=1800)
    )
    ctld = Slurmctld(lua, settings)
    assert ctld.submit("min_runtime=1h").written["qos"] == "gpu-3h"
    assert ctld.submit("min_runtime=10m", tres_per_job="gres/gpu:3").written["qos"] == "gpu-3h"
    assert_refused(ctld.submit("min_runtime=4h"), INVALID_TIME_LIMIT, "cap of 3h")


def test_a_cap_below_the_ladder_s_top(lua: str) -> None:
    ctld = Slurmctld(lua, PluginSettings(cap=7200))
    assert_refused(ctld.submit("min_runtime=4h"), INVALID_TIME_LIMIT, "cap of 2h")


@pytest.mark.parametrize("lua", LUAS)
@given(name=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12))
def test_any_name_is_quoted_safely(lua: str, name: str) -> None:
    runtime = slurmctld(lua)._runtime
    assert runtime.eval(quote(name)) == name


def test_a_name_cannot_leave_its_quotes(lua: str) -> None:
    settings = PluginSettings(other_qos=('x" } os.exit(1) --', "-- settings: end\n"))
    assert Slurmctld(lua, settings).submit("min_runtime=1h").code == SUCCESS


@pytest.mark.parametrize(("cap", "default"), [(36_000, 0), (None, 36_000), (None, -1), (3600, 7200)])
def test_settings_that_make_no_sense_are_refused(cap: int | None, default: int) -> None:
    with pytest.raises(ConfigError):
        PluginSettings(cap=cap, default_min_runtime=default)


def test_every_priority_has_its_site_factor_in_the_plugin() -> None:
    for priority in Priority:
        assert f"{priority.value} = {priority.site_factor}" in packaged()
