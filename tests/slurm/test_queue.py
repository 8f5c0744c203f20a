"""squeue's rows become jobs, whatever their owners wrote into them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.cluster import Job, Node
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.resources import UNTYPED, Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.errors import SlurmUnreadable
from slurm_fairshare.slurm.queue import Table, detail_by_node, doubtful, evenly, parse_jobs, release_of

LADDER = Ladder.default()
TABLE = Table.fresh((24, 11))
PLAIN = {
    "JobID": "7",
    "JobArrayID": "7",
    "Account": "bio",
    "UserName": "alice",
    "UserID": "2001",
    "Partition": "gpu",
    "QOS": "fs-1h",
    "State": "RUNNING",
    "Reason": "None",
    "PriorityLong": "320000",
    "SubmitTime": "1795982266",
    "EligibleTime": "1795982266",
    "StartTime": "1795982267",
    "TimeLimit": "1:30:00",
    "tres-alloc": "cpu=1,mem=1000M,node=1,billing=1,gres/gpu=2,gres/gpu:h100=2",
    "NumNodes": "1",
    "NodeList": "n1",
    "admin_comment": "fairshare min_runtime=3600 resumable=yes priority=normal",
    "Requeue": "1",
    "BatchFlag": "1",
    "HetJobId": "N/A",
    "RestartCnt": "0",
    "Dependency": "(null)",
    "Feature": "(null)",
    "Licenses": "(null)",
    "ReqNodes": "",
    "OverSubscribe": "OK",
    "Contiguous": "0",
    "ReqSwitch": "0",
    "Reservation": "(null)",
    "tres-per-job": "N/A",
    "tres-per-node": "gres/gpu:2",
    "tres-per-socket": "N/A",
    "tres-per-task": "N/A",
    "ExcNodes": "",
    "Exclusive": "NO",
    "Name": "wrap",
}
PENDING = {
    "State": "PENDING",
    "Reason": "Resources",
    "StartTime": "1795999999",
    "NodeList": "",
}


def row(table: Table = TABLE, /, **values: str) -> str:
    given = {
        **PLAIN,
        **{name.replace("_per_", "-per-").replace("tres_alloc", "tres-alloc"): v for name, v in values.items()},
    }
    return table.between.join(given[name] for name in table.columns) + table.behind + "\n"


def read(text: str, table: Table = TABLE) -> tuple[tuple[Job, ...], tuple[RejectedRow, ...]]:
    return parse_jobs(text, table, LADDER)


def one(table: Table = TABLE, /, **values: str) -> Job:
    jobs, rejected = read(row(table, **values), table)
    assert not rejected
    return jobs[0]


def test_a_row_is_a_job() -> None:
    job = one()
    assert (job.job_id, job.account, job.user, job.uid, job.qos) == (7, "bio", "alice", 2001, "fs-1h")
    assert (job.priority, job.restarts, job.requeueable, job.batch) == (320000, 0, True, True)
    assert job.start == datetime.fromtimestamp(1795982267, UTC)
    assert job.time_limit == timedelta(minutes=90)
    assert job.by_node == {"n1": Resources({"h100": 2}, 1, 1000)}
    assert job.contract == Contract(3600, resumable=True)
    assert job.constraints == ()


def test_the_start_of_a_pending_job_is_a_guess_and_not_taken() -> None:
    job = one(**PENDING)
    assert (job.pending, job.start, job.nodes, job.by_node) == (True, None, (), {})


NAMES = [
    "na|me",
    "two\nlines",
    "a\x1fb\x1fc",
    "x\x1e\n9\x1f9\x1fbio",
    "State=FAKE JobId=1",
    "  blanks  ",
    "",
    "ünïcode 漢",
    "'\"$(x)",
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_leaves_the_other_columns_and_jobs_alone(name: str) -> None:
    jobs, rejected = read(row(Name=name) + row(JobID="8", JobArrayID="8"))
    assert not rejected
    assert [(job.job_id, job.account) for job in jobs] == [(7, "bio"), (8, "bio")]
    assert jobs[0].name == name


@given(st.text())
def test_no_name_can_forge_a_column_or_a_job(name: str) -> None:
    jobs, rejected = read(row(Name=name) + row(JobID="8", JobArrayID="8"))
    assert ([job.name for job in jobs], rejected) == ([name, "wrap"], ())


def test_nobody_can_guess_the_separators() -> None:
    assert Table.fresh((24, 11)).between != Table.fresh((24, 11)).between


def test_columns_have_no_width_so_nothing_is_cut_off() -> None:
    assert all(part.split(":", 1)[1][0] in "\x1f\x1e" for part in TABLE.format.split(","))


def test_gpus_behind_300_characters_are_still_there() -> None:
    licences = ",".join(f"license/solver{n}=1" for n in range(20))
    assert one(tres_alloc=f"{licences},gres/gpu=4").wanted.gpu_count == 4


def test_a_waiting_array_is_one_line_that_stands_for_its_tasks() -> None:
    job = one(**PENDING, JobArrayID="7_[5-9%2]")
    assert (job.job_id, job.label, job.array_size, job.array_limit) == (7, "7_[5-9%2]", 5, 2)


def test_the_reason_of_a_folded_array_is_its_own_and_not_that_of_a_requeued_task() -> None:
    folded = {**PENDING, "JobArrayID": "7_[1,4]", "Reason": "Resources,BeginTime"}
    assert (one(**folded).reason, one(**folded).array_size) == ("Resources", 2)
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert one(**{**folded, "Reason": down}).reason == down


def test_a_component_names_its_leader() -> None:
    job = one(JobID="21", JobArrayID="20+1", HetJobId="20")
    assert (job.job_id, job.het_leader) == (21, 20)


def test_a_job_in_several_partitions_is_one_job() -> None:
    assert one(**PENDING, Partition="gpu,debug").partitions == ("gpu", "debug")


@pytest.mark.parametrize("state", ["COMPLETING", "CONFIGURING", "SUSPENDED", "RESIZING", "STAGE_OUT"])
def test_states_that_hold_gpus_hold_them(state: str) -> None:
    assert one(State=state).holding


@pytest.mark.parametrize("state", ["REQUEUE_HOLD", "SPECIAL_EXIT", "REVOKED"])
def test_a_held_requeued_job_neither_waits_nor_holds(state: str) -> None:
    job = one(State=state, NodeList="")
    assert (job.pending, job.holding) == (False, False)


def test_a_job_that_asked_for_no_requeue_is_none() -> None:
    assert (one(Requeue="0").requeueable, one(BatchFlag="0").batch) == (False, False)


CONSTRAINTS = {
    "features": ({"Feature": "ib&nvlink"}, ("features=ib&nvlink",)),
    "licences": ({"Licenses": "x:1"}, ("licenses=x:1",)),
    "a whole node": ({"OverSubscribe": "NO"}, ("exclusive=node",)),
    "shared only with oneself": ({"OverSubscribe": "USER"}, ("exclusive=user",)),
    "nodes asked for": ({"ReqNodes": "n[1-2]"}, ("required_nodes=n[1-2]",)),
    "nodes left out": ({"ExcNodes": "n2"}, ("excluded_nodes=n2",)),
    "another job first": ({"Dependency": "afterok:5(unfulfilled)"}, ("dependency=afterok:5(unfulfilled)",)),
    "a reservation": ({"Reservation": "maint"}, ("reservation=maint",)),
    "neighbouring nodes": ({"Contiguous": "1", "ReqSwitch": "2"}, ("contiguous", "switches=2")),
    "a type nobody tracks": (
        {"tres_alloc": "gres/gpu=8", "tres_per_node": "gres/gpu:a100:8"},
        ("gpu_type=a100",),
    ),
    "a tracked type": ({"tres_per_node": "gres:gpu:h100:2"}, ()),
    "no type": ({"tres_alloc": "gres/gpu=8", "tres_per_node": "gres/gpu:8"}, ()),
}


@pytest.mark.parametrize(("values", "expected"), CONSTRAINTS.values(), ids=CONSTRAINTS.keys())
def test_what_feasibility_does_not_model_is_named(values: dict[str, str], expected: tuple[str, ...]) -> None:
    assert one(**values).constraints == expected


def test_2605_has_a_column_of_its_own_for_whole_nodes() -> None:
    table = Table.fresh((26, 5))
    assert one(table, OverSubscribe="NO", Exclusive="NO").constraints == ()
    assert one(table, OverSubscribe="NO", Exclusive="NODE").constraints == ("exclusive=node",)


def test_2205_tells_the_excluded_nodes_elsewhere() -> None:
    table = Table.fresh((22, 5))
    assert "ExcNodes" not in table.columns
    jobs, _ = parse_jobs(row(table), table, LADDER, {7: "n2"})
    assert jobs[0].constraints == ("excluded_nodes=n2",)


def test_without_a_pin_the_rung_protects() -> None:
    assert one(admin_comment="(null)", QOS="fs-4h").contract == Contract(14_400)
    assert one(admin_comment="(null)", QOS="normal").contract is None


def test_a_damaged_pin_protects_as_the_rung_does_and_is_shown() -> None:
    jobs, rejected = read(row(admin_comment="fairshare resumable=maybe", QOS="fs-4h"))
    assert jobs[0].contract == Contract(14_400)
    assert "damaged" in rejected[0].reason


REFUSED = {
    "a running job without a start": {"StartTime": "N/A"},
    "an id that is none": {"JobArrayID": "7.batch"},
    "a time without an offset": {"SubmitTime": "2026-11-29T20:46:18"},
    "a limit that is none": {"TimeLimit": "INVALID"},
    "GPUs that are no number": {"tres_alloc": "gres/gpu=x"},
    "nodes that are none": {"NodeList": "n[1-"},
}


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED.keys())
def test_a_job_that_cannot_be_read_is_shown_and_the_others_are_kept(values: dict[str, str]) -> None:
    jobs, rejected = read(row(**values) + row(JobID="8", JobArrayID="8"))
    assert ([job.job_id for job in jobs], len(rejected)) == ([8], 1)


@pytest.mark.parametrize("text", ["gibberish", "7\x1fbio\n", row().replace("1795982267", "x"), row() + "half a r"])
def test_an_answer_that_is_not_understood_is_an_error_and_no_empty_queue(text: str) -> None:
    with pytest.raises(SlurmUnreadable, match=r"not understood|can be read"):
        read(text)


def test_an_empty_queue_is_empty() -> None:
    assert read("") == ((), ())


def test_the_release_is_read_from_the_version() -> None:
    with pytest.raises(SlurmUnreadable):
        release_of("slurm unknown")


# --- GPUs by node


def test_gpus_that_do_not_divide_lie_unevenly_and_nothing_is_said() -> None:
    assert evenly(Resources({"h100": 9}, 2), ("n1", "n2")) == {}
    assert one(NodeList="n[1-2]", NumNodes="2", tres_alloc="gres/gpu=9").by_node == {}


def node(name: str, allocated: int) -> Node:
    return Node(name, frozenset({"MIXED"}), Resources({"h100": 8}), Resources({"h100": allocated}))


def holder(job_id: int, gpus: int, nodes: str) -> Job:
    return one(
        JobID=str(job_id), JobArrayID=str(job_id), NodeList=nodes, tres_alloc=f"gres/gpu={gpus},gres/gpu:h100={gpus}"
    )


def test_an_even_guess_that_agrees_with_the_nodes_is_believed() -> None:
    assert doubtful([holder(1, 4, "n[1-2]"), holder(2, 1, "n1")], [node("n1", 3), node("n2", 2)]) == ()


def test_an_even_guess_that_the_nodes_deny_is_doubtful() -> None:
    job = holder(1, 4, "n[1-2]")
    assert doubtful([job, holder(2, 1, "n1")], [node("n1", 4), node("n2", 1)]) == (job,)


def test_whole_nodes_are_certain_even_while_others_change() -> None:
    assert doubtful([holder(1, 16, "n[1-2]")], [node("n1", 8), node("n2", 7)]) == ()


DETAIL = (
    "JobId=7 JobName=wrap JOB_GRES=gpu:h100:11   Nodes=n1 CPU_IDs=0 Mem=1000 GRES=gpu:h100:8(IDX:0-7)   "
    "Nodes=n2 CPU_IDs=0-1 Mem=2000 GRES=gpu:h100:3(IDX:0-2) MinCPUsNode=1"
)


def test_the_gpus_on_each_node_are_read_from_the_detail() -> None:
    assert detail_by_node(DETAIL, holder(7, 11, "n[1-2]")) == {
        "n1": Resources({"h100": 8}, 1, 1000),
        "n2": Resources({"h100": 3}, 2, 2000),
    }


def test_equal_nodes_stand_on_one_line() -> None:
    text = "JobId=7   Nodes=n[1-2] CPU_IDs=0 Mem=1000 GRES=gpu:h100:4(IDX:0-3) "
    assert {k: v.gpu_count for k, v in detail_by_node(text, holder(7, 8, "n[1-2]")).items()} == {"n1": 4, "n2": 4}


@pytest.mark.parametrize("gpus", [10, 12])
def test_a_detail_that_does_not_add_up_is_not_believed(gpus: int) -> None:
    assert detail_by_node(DETAIL, holder(7, gpus, "n[1-2]")) == {}
    assert detail_by_node(DETAIL, holder(7, 11, "n[1-3]")) == {}


def test_untracked_types_are_untyped_on_the_nodes_too() -> None:
    job = one(NodeList="n[1-2]", NumNodes="2", tres_alloc="gres/gpu=11")
    assert detail_by_node(DETAIL, job)["n1"].gpus == {UNTYPED: 8}
