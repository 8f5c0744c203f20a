"""The whole port over fake tools: which processes it starts, and what it does with their answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from slurm_fairshare.core.contract import Contract, Ladder, pinned
from slurm_fairshare.core.plan import AddQos, RemoveQos, SetPriority
from slurm_fairshare.core.resources import ChargeRule
from slurm_fairshare.core.window import Window
from slurm_fairshare.errors import SlurmRefused, SlurmUnreachable, SlurmUnreadable
from slurm_fairshare.slurm.cli import CommandLine
from slurm_fairshare.slurm.hands import NOTE_LENGTH, with_note
from slurm_fairshare.slurm.queue import Table
from slurm_fairshare.slurm.run import Answer
from tests.slurm.fake import NOW, Tools, said
from tests.slurm.test_nodes import LINE
from tests.slurm.test_queue import PENDING, row
from tests.slurm.test_settings import ACCESS, ASSOC_MGR, QOS

IDLE = LINE.replace("cpu=1,mem=1000M,gres/gpu=2,gres/gpu:h100=2", "").replace("MIXED", "IDLE")
UNKNOWN = said("slurm_load_jobs error: Invalid job id specified")


class Site:
    """A cluster of canned answers; `jobs` are squeue's rows as keyword values."""

    def __init__(self, *jobs: dict[str, str], version: str = "slurm 24.11.5", **replies: object) -> None:
        self.jobs, self.version, self.nodes = jobs, version, IDLE
        self.comment, self.detail, self.excluded = "(null)", "", ""
        self.tools = Tools(
            squeue=self._squeue,
            scontrol=self._scontrol,
            sacctmgr=self._sacctmgr,
            sacct="",
            sdiag="DBD Agent queue size: 3\n",
            scancel="",
            **replies,  # type: ignore[arg-type]
        )
        self.slurm = CommandLine("lab", Ladder.default(), runner=self.tools.runner(), clock=lambda: NOW)

    def _squeue(self, words: list[str]) -> Answer | str:
        if "--version" in words:
            return self.version
        if "-o" in words:
            return self.excluded
        if not self.jobs and any(word.startswith("--jobs=") for word in words):
            return UNKNOWN
        columns = [part.partition(":") for part in words[-1].split(",")]
        if len(columns) == 2:
            return f"{self.jobs[0].get('JobID', '7')}{columns[0][2]}{self.comment}{columns[0][2]}\n"
        table = Table(tuple(name for name, _, _ in columns), columns[0][2], columns[-1][2])
        return "".join(row(table, **job) for job in self.jobs)

    def _scontrol(self, words: list[str]) -> Answer | str:
        if "nodes" in words:
            return self.nodes
        return ASSOC_MGR if "assoc_mgr" in words else self.detail

    def _sacctmgr(self, words: list[str]) -> Answer | str:
        if "show" not in words:
            return " Modified account associations...\n"
        return QOS if "qos" in words else ACCESS

    @property
    def last(self) -> list[str]:
        return self.tools.commands[-1]


def test_a_tick_with_nothing_new_starts_five_processes_and_none_of_sacctmgr() -> None:
    site = Site({})
    for _ in range(2):
        site.slurm.calls.clear()
        assert site.slurm.backlog() == 3
        site.slurm.runs(Window(NOW - timedelta(minutes=10), NOW))
        site.slurm.picture(NOW)
        site.slurm.held()
        site.slurm.carry_out(())
    assert site.slurm.calls == {"sdiag": 1, "sacct": 1, "squeue": 1, "scontrol": 2}


def test_a_picture_is_the_queue_and_the_nodes_at_the_moment_given() -> None:
    picture = Site({}, {**PENDING, "JobID": "8", "JobArrayID": "8"}).slurm.picture(NOW)
    assert (picture.cluster, picture.at, len(picture.holding), len(picture.pending)) == ("lab", NOW, 1, 1)
    assert picture.nodes[0].name == "n1"


def test_a_row_that_cannot_be_read_is_shown_until_the_next_picture() -> None:
    site = Site({"TimeLimit": "INVALID"}, {"JobID": "8", "JobArrayID": "8"})
    site.slurm.picture(NOW)
    assert [rejected.source for rejected in site.slurm.rejected] == ["squeue"]
    site.jobs = ({},)
    site.slurm.picture(NOW)
    assert site.slurm.rejected == ()


def test_a_picture_without_its_nodes_is_an_error() -> None:
    site = Site({})
    site.nodes = "NodeName=n1 State="
    with pytest.raises(SlurmUnreadable):
        site.slurm.picture(NOW)


def test_a_column_squeue_does_not_know_is_an_error_though_it_exits_with_0() -> None:
    site = Site()
    site.tools._replies["squeue"] = ["slurm 24.11.5", Answer(0, "x", "error: Invalid job format specification: x")]
    with pytest.raises(SlurmUnreadable, match="column"):
        site.slurm.picture(NOW)


def test_2205_is_asked_for_excluded_nodes_once_more() -> None:
    site = Site(PENDING, version="slurm-wlm 22.05.8")
    site.excluded = "7 n2\n8 \n"
    assert site.slurm.picture(NOW).jobs[0].constraints == ("excluded_nodes=n2",)


UNEVEN = {"NodeList": "n[1-2]", "NumNodes": "2", "tres_alloc": "gres/gpu=9,gres/gpu:h100=9"}
TWO = IDLE + "\n" + IDLE.replace("n1", "n2")


def test_uneven_jobs_are_asked_for_their_nodes_one_by_one_and_not_without_end() -> None:
    site = Site(*({**UNEVEN, "JobID": str(n), "JobArrayID": str(n)} for n in range(1, 13)))
    site.nodes = TWO
    site.detail = (
        "JobId=1   Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:h100:8(IDX:0-7)   Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:h100:1(IDX:0) "
    )
    picture = site.slurm.picture(NOW)
    assert [bool(job.by_node) for job in picture.jobs] == [True] * 8 + [False] * 4
    assert picture.jobs[0].by_node["n1"].gpu_count == 8


def test_a_job_is_the_one_of_that_number_and_not_a_task_of_its_array() -> None:
    site = Site({"JobID": "9", "JobArrayID": "7_1"}, {**PENDING, "JobArrayID": "7_[2-3]"})
    job = site.slurm.job(7)
    assert job is not None
    assert (job.job_id, job.pending) == (7, True)


def test_a_job_slurm_does_not_know_is_none() -> None:
    assert Site().slurm.job(99) is None


def test_no_answer_about_a_job_is_not_the_same_as_no_job() -> None:
    site = Site()
    site.tools._replies["squeue"] = ["slurm 24.11.5", said("Unable to contact slurm controller (connect failure)")]
    with pytest.raises(SlurmUnreachable):
        site.slurm.job(7)


def test_the_dominant_rule_reads_the_nodes_once_for_what_the_cluster_is() -> None:
    site = Site()
    slurm = CommandLine("lab", Ladder.default(), ChargeRule(dominant=True), runner=site.slurm.runner)
    slurm.runs(Window(NOW - timedelta(days=3), NOW))
    assert slurm.calls == {"sacct": 3, "scontrol": 1}


# --- changes


def test_changes_go_one_by_one_with_no_question_asked() -> None:
    site = Site()
    site.slurm.carry_out((AddQos("fs-1h"), SetPriority(("bio",), 7)))
    assert [words[:2] for words in site.tools.commands] == [["sacctmgr", "-i"]] * 2


def test_the_first_change_that_fails_ends_it() -> None:
    site = Site()
    site.tools._replies["sacctmgr"] = ["", said(" Error with request: Access/permission denied"), ""]
    with pytest.raises(SlurmRefused, match="AdminLevel Operator"):
        site.slurm.carry_out((AddQos("a"), SetPriority(("bio",), 7), RemoveQos("a")))
    assert site.slurm.calls["sacctmgr"] == 2


def test_no_change_is_carried_out_if_one_cannot_be_said() -> None:
    site = Site()
    with pytest.raises(SlurmRefused, match="because of"):
        site.slurm.carry_out((AddQos("good"), AddQos("not good")))
    assert site.slurm.calls["sacctmgr"] == 0


ALREADY = [
    (" Nothing modified\n", ""),
    (" Nothing new added.\n", ""),
    (" Nothing deleted\n", ""),
    (
        "",
        "sacctmgr: error: Request didn't affect anything\n"
        " Error with request: Data has not changed since time specified",
    ),
]


@pytest.mark.parametrize(("out", "err"), ALREADY)
def test_what_was_so_already_is_no_error(out: str, err: str) -> None:
    site = Site()
    site.tools._replies["sacctmgr"] = [said(err, stdout=out)]
    site.slurm.carry_out((AddQos("a"),))


def test_after_a_change_slurmdbd_is_asked_again() -> None:
    site = Site()
    site.slurm.held()
    site.slurm.carry_out((SetPriority(("bio",), 7),))
    site.slurm.calls.clear()
    site.slurm.held()
    assert site.slurm.calls["sacctmgr"] == 2


# --- hands

PIN = pinned(Contract(3600, resumable=True))


def test_a_note_stands_behind_the_pin() -> None:
    site = Site({})
    site.comment = PIN
    site.slurm.note(7, "requeued for 9:\n under-served")
    assert site.last == ["scontrol", "update", "JobId=7", f"AdminComment={PIN}; requeued for 9: under-served"]


def test_the_first_note_of_a_job_without_a_pin_stands_alone() -> None:
    site = Site({})
    site.slurm.note(7, "words")
    assert site.last[-1] == "AdminComment=words"


def test_a_note_never_pushes_the_pin_out() -> None:
    text = with_note(f"{PIN}; {'old ' * 240}", "new " * 400)
    assert len(text.encode()) <= NOTE_LENGTH
    assert text.startswith(f"{PIN}; new new")
    assert with_note(f"{PIN}; {'old ' * 240}", "ä" * 900).startswith(PIN)


def test_a_note_without_the_right_to_write_it_says_who_has() -> None:
    site = Site({})
    site.tools._replies["scontrol"] = [said("Access/permission denied for job 7")]
    with pytest.raises(SlurmRefused, match="AdminLevel Administrator"):
        site.slurm.note(7, "words")


ADDRESSES = {
    "a job": ({}, "7"),
    "a task of an array": ({"JobArrayID": "5_2"}, "5_2"),
    "the last task, which has the array's own number": ({"JobArrayID": "7_9"}, "7_9"),
    "a component of a heterogeneous job": ({"JobArrayID": "5+2", "HetJobId": "5"}, "5"),
}


@pytest.mark.parametrize(("job", "address"), ADDRESSES.values(), ids=ADDRESSES.keys())
def test_only_the_job_meant_is_touched(job: dict[str, str], address: str) -> None:
    site = Site(job)
    site.slurm.requeue(7)
    assert site.last == ["scontrol", "requeue", address]
    site.slurm.notice(7, "USR1")
    assert site.last == ["scancel", "--batch", "--signal=USR1", address]
    site.slurm.end(7)
    assert site.last == ["scancel", address]


@pytest.mark.parametrize("signal", ["usr1", "-9", "KILL now", "", "USR1;x"])
def test_a_signal_that_is_none_is_not_sent(signal: str) -> None:
    with pytest.raises(SlurmRefused, match="no signal"):
        Site({}).slurm.notice(7, signal)


def test_a_job_that_is_gone_is_a_refusal() -> None:
    for act in (Site().slurm.requeue, Site().slurm.end):
        with pytest.raises(SlurmRefused, match="not in the queue"):
            act(7)


def test_an_end_that_came_by_itself_is_no_error() -> None:
    site = Site({})
    site.tools._replies["scancel"] = [
        said("scancel: error: Kill job error on job id 7: Job/step already completing or completed")
    ]
    site.slurm.end(7)


def test_the_clock_is_the_moment_at_which_slurmctld_answered() -> None:
    tools = Tools(scontrol="Configuration data as of 1790000000\nAccountingStorageBackupHost = (null)\n")
    assert CommandLine("lab", Ladder.default(), runner=tools.runner()).clock().timestamp() == 1_790_000_000


@pytest.mark.parametrize("printed", ["", "Configuration data as of 2026-10-08T12:00:00\n", "nonsense"])
def test_a_clock_that_cannot_be_read_is_an_error(printed: str) -> None:
    with pytest.raises(SlurmUnreadable, match="when it was made"):
        CommandLine("lab", Ladder.default(), runner=Tools(scontrol=printed).runner()).clock()
