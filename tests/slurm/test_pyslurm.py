"""pyslurm as another way to the picture: taken where it fits and agrees, refused with words everywhere else.

pyslurm can be installed beside one release of Slurm only, so its absence is tested as the refusal it must be, and what
is read from it on objects that have its properties; tests/cluster/test_pyslurm.py is for where it is.
"""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_fairshare.cli.app import App
from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import Contract, Ladder
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.errors import ConfigError, SlurmUnreachable, SlurmUnreadable
from slurm_fairshare.slurm.pyslurm_backend import PyslurmBackend, check_release, load_pyslurm, node_of, row_of
from slurm_fairshare.slurm.queue import COLUMNS, EXCLUDED, EXCLUSIVE, Table
from slurm_fairshare.store.memory import MemoryStore
from tests.slurm.fake import EPOCH, NOW, Tools

NODE_LINE = (
    "NodeName=n1 CPUAlloc=1 AvailableFeatures=ib ActiveFeatures=ib Gres=gpu:h100:8 State=MIXED Partitions=gpu "
    "RealMemory=128000 CfgTRES=cpu=64,mem=128000M,billing=64,gres/gpu=8,gres/gpu:h100=8 "
    "AllocTRES=cpu=4,mem=4000M,gres/gpu=2,gres/gpu:h100=2 "
)


class RPCError(Exception):
    """As pyslurm's."""


def amounts(**gres: int) -> SimpleNamespace:
    count = {name.replace("_", ":"): SimpleNamespace(count=number) for name, number in gres.items()}
    return SimpleNamespace(cpu=SimpleNamespace(count=4), mem=SimpleNamespace(count=4000), gres=count)


def told(**values: Any) -> SimpleNamespace:
    """A running job, with the properties of pyslurm.Job that are read."""
    plain: dict[str, Any] = {
        "id": 7,
        "array_id": None,
        "array_task_id": None,
        "array_tasks_waiting": None,
        "array_tasks_parallel": None,
        "heterogeneous_id": 0,
        "heterogeneous_offset": 0,
        "account": "bio",
        "user_name": "alice",
        "user_id": 2001,
        "partition": "gpu",
        "qos": "fs-1h",
        "state": "RUNNING",
        "state_reason": "None",
        "priority": 300_000,
        "submit_time": EPOCH - 60,
        "eligible_time": EPOCH - 60,
        "start_time": EPOCH - 50,
        "time_limit": 90,
        "allocated_tres": amounts(gpu=2, gpu_h100=2),
        "requested_tres": None,
        "num_nodes": 1,
        "allocated_nodes": "n1",
        "admin_comment": "fairshare min_runtime=1800 resumable=yes priority=normal",
        "is_requeueable": True,
        "is_batch_job": True,
        "requeue_count": 0,
        "dependencies": None,
        "constraints": None,
        "licenses": None,
        "required_nodes": None,
        "excluded_nodes": None,
        "resource_sharing": "OK",
        "requires_contiguous_nodes": False,
        "required_switches": 0,
        "reservation": None,
        "name": "train",
        "sockets_per_node": None,
    }
    return SimpleNamespace(**plain | values)


def machine(**values: Any) -> SimpleNamespace:
    plain: dict[str, Any] = {
        "name": "n1",
        "state": "MIXED",
        "configured_gres": {"gpu:h100": 8},
        "effective_cpus": 64,
        "real_memory": 128_000,
        "allocated_tres": {"cpu": "4", "mem": "4000M", "gres/gpu": "2", "gres/gpu:h100": "2"},
        "partitions": ["gpu"],
        "active_features": ["ib"],
        "reason": None,
        "reason_user": "root",
        "reason_time": None,
    }
    return SimpleNamespace(**plain | values)


def module(*jobs: SimpleNamespace, version: str = "25.11.2", nodes: tuple[SimpleNamespace, ...] = ()) -> Any:
    def loads(found: tuple[SimpleNamespace, ...]) -> SimpleNamespace:
        return SimpleNamespace(load=lambda: dict(enumerate(found)))

    return SimpleNamespace(__version__=version, RPCError=RPCError, Jobs=loads(jobs), Nodes=loads(nodes or (machine(),)))


def squeue(*jobs: SimpleNamespace) -> Any:
    """What squeue prints of the same jobs."""

    def answer(words: list[str]) -> str:
        if "--version" in words:
            return "slurm 25.11.8"
        columns = [part.partition(":")[0] for part in words[-1].split(",") if ":" in part]
        marks = words[-1].split(f"{columns[0]}:")[1]
        between, behind = marks.split(",")[0], words[-1].rpartition(":")[2]
        rows = (row_of(job, {}) for job in jobs)
        return "".join(between.join(row.get(name, "") for name in columns) + behind + "\n" for row in rows)

    return answer


def backend(pyslurm: Any, *jobs: SimpleNamespace) -> PyslurmBackend:
    tools = Tools(squeue=squeue(*jobs), scontrol=NODE_LINE)
    return PyslurmBackend(pyslurm, "lab", Ladder.default(), runner=tools.runner())


# --- refusals -------------------------------------------------------------------------------------


def test_where_pyslurm_is_not_installed_the_setting_is_refused_with_what_to_do() -> None:
    def missing(name: str) -> Any:
        raise ImportError("libslurmfull.so: cannot open shared object file")

    with pytest.raises(ConfigError, match=r'libslurmfull.*slurm-fairshare\[pyslurm\].*slurm.backend = "cli"'):
        load_pyslurm(missing)


def test_the_setting_decides_and_a_python_without_pyslurm_says_so() -> None:
    app = App(Config(cluster="lab", slurm={"backend": "pyslurm"}), MemoryStore("lab"))
    if importlib.util.find_spec("pyslurm") is None:
        with pytest.raises(ConfigError, match="cannot be imported"):
            app.slurm(MemoryStore("lab"))  # type: ignore[arg-type]
    else:
        assert isinstance(app.slurm(MemoryStore("lab")), PyslurmBackend)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["25.5.0", "24.11.1", "unknown"])
def test_another_release_than_slurms_is_refused(version: str) -> None:
    with pytest.raises(ConfigError, match=r"not made for Slurm 25\.11"):
        check_release(module(version=version), (25, 11))


def test_a_release_may_be_written_with_or_without_its_zero() -> None:
    for version in ("25.5.0", "25.05.1"):
        check_release(module(version=version), (25, 5))


def test_a_pyslurm_that_sees_another_queue_than_squeue_is_refused() -> None:
    slurm = backend(module(told(account="chem")), told())
    with pytest.raises(SlurmUnreadable, match=r'disagree about job 7 .*slurm.backend = "cli"'):
        slurm.picture(NOW)


def test_a_pyslurm_that_sees_other_gpus_on_a_node_is_refused() -> None:
    slurm = backend(module(told(), nodes=(machine(configured_gres={"gpu:h100": 4}),)), told())
    with pytest.raises(SlurmUnreadable, match="disagree about node n1"):
        slurm.picture(NOW)


def test_a_slurmctld_that_does_not_answer_is_unreachable() -> None:
    def down() -> Any:
        raise RPCError("Unable to contact slurm controller")

    pyslurm = module(told())
    pyslurm.Jobs.load = down
    with pytest.raises(SlurmUnreachable, match="scontrol ping"):
        backend(pyslurm, told()).picture(NOW)


# --- what is read ---------------------------------------------------------------------------------


def test_once_both_agree_pyslurm_alone_is_asked() -> None:
    slurm = backend(module(told()), told())
    slurm.picture(NOW)
    slurm.calls.clear()
    picture = slurm.picture(NOW)
    assert slurm.calls == {}
    (job,) = picture.jobs
    assert (job.account, job.state, job.wanted) == ("bio", "RUNNING", Resources({"h100": 2}, 4, 4000))
    assert job.contract == Contract(1800, resumable=True)
    assert job.by_node["n1"].gpu_count == 2
    (node,) = picture.nodes
    assert (node.total, node.allocated.gpus) == (Resources({"h100": 8}, 64, 128_000), {"h100": 2})


def test_every_column_that_squeue_is_asked_for_is_told() -> None:
    assert set(row_of(told(), {})) >= {*COLUMNS, EXCLUDED, EXCLUSIVE}
    assert set(Table.fresh((26, 5)).columns) <= set(row_of(told(), {}))


LABELS = {
    "7": {},
    "7_2": {"array_id": 7, "array_task_id": 2},
    "7_0": {"array_id": 7, "array_task_id": None},
    "7_[3-9%2]": {"array_id": 7, "array_tasks_waiting": "3-9", "array_tasks_parallel": 2},
    "11+1": {"heterogeneous_id": 11, "heterogeneous_offset": 1},
}


@pytest.mark.parametrize(("label", "values"), LABELS.items())
def test_a_jobs_label_is_squeues(label: str, values: dict[str, Any]) -> None:
    assert row_of(told(**values), {})["JobArrayID"] == label


def dependency(**kinds: Any) -> dict[str, Any]:
    return {"after": [], "afterany": [], "afterok": [], "singleton": False, "satisfy": "all"} | kinds


DEPENDENCIES: dict[str, dict[str, Any] | None] = {
    "": None,
    "afterany:13,afterok:12(unfulfilled)": dependency(afterok=["12(unfulfilled)"], afterany=[13]),
    "afterok:12?afterok:13": dependency(afterok=[12, 13], satisfy="any"),
    "singleton": dependency(),
}


@pytest.mark.parametrize(("words", "kinds"), DEPENDENCIES.items())
def test_what_a_job_depends_on_is_written_as_slurm_writes_it(words: str, kinds: dict[str, Any] | None) -> None:
    assert row_of(told(dependencies=kinds), {})["Dependency"] == words


@pytest.mark.parametrize(("sockets", "gpus", "constraints"), [(2, 2, 1), (2, 0, 0), (1, 2, 0), (None, 2, 0)])
def test_gpus_on_each_of_several_sockets_are_a_constraint(sockets: int | None, gpus: int, constraints: int) -> None:
    waiting = told(
        state="PENDING",
        start_time=None,
        allocated_tres=None,
        allocated_nodes=None,
        requested_tres=amounts(gpu=gpus) if gpus else amounts(),
        sockets_per_node=sockets,
    )
    (job,) = backend(module(waiting), waiting).picture(NOW).jobs
    assert len(job.constraints) == constraints


def undecodable(_: Any) -> str:
    return b"tr\xe4in".decode()


class ForeignJob(SimpleNamespace):
    name = property(undecodable)


class ForeignNode(SimpleNamespace):
    reason = property(undecodable)


def test_words_that_are_no_utf8_hide_neither_job_nor_node() -> None:
    job, node = ForeignJob(**vars(told())), ForeignNode(**vars(machine(state="IDLE+DRAIN", reason_time=EPOCH)))
    (found,) = backend(module(job), told()).picture(NOW).jobs
    assert found.name == "tr\\xe4in"
    assert node_of(node).reason == f"tr\\xe4in [root@{EPOCH}]"


def test_an_arrays_requeued_task_may_stand_apart_from_the_line_that_squeue_folds_it_into() -> None:
    waiting = {"array_id": 7, "state": "PENDING", "start_time": None, "allocated_tres": None, "allocated_nodes": None}
    line = told(**waiting, array_tasks_waiting="3", array_tasks_parallel=2)
    task = told(**waiting, id=9, array_task_id=None, requeue_count=1)
    folded = told(**waiting, array_tasks_waiting="0,3")
    picture = backend(module(task, line), folded).picture(NOW)
    assert [(job.label, job.array_limit) for job in picture.jobs] == [("7_0", 0), ("7_[3%2]", 2)]
    with pytest.raises(SlurmUnreadable, match="disagree about job 7_"):
        backend(module(line), folded).picture(NOW)


def test_jobs_that_have_ended_are_in_no_queue_and_one_that_waits_holds_nothing() -> None:
    waiting = told(
        id=8, state="PENDING", start_time=None, allocated_tres=None, requested_tres=amounts(gpu=4), allocated_nodes=None
    )
    slurm = backend(module(told(id=6, state="COMPLETED"), waiting), waiting)
    (job,) = slurm.picture(NOW).jobs
    assert (job.job_id, job.start, job.wanted.gpu_count, dict(job.by_node)) == (8, None, 4, {})


def test_a_drained_node_says_so_and_why() -> None:
    node = node_of(machine(state="IDLE+DRAIN", reason="bad\ngpu", reason_time=EPOCH, allocated_tres=None))
    assert (node.drained, node.reason, node.allocated.gpu_count) == (True, f"bad gpu [root@{EPOCH}]", 0)


def test_a_job_that_cannot_be_read_is_kept_aside() -> None:
    good, bad = told(), told(id=9, submit_time=None)
    slurm = backend(module(good, bad), good)
    assert [job.job_id for job in slurm.picture(NOW).jobs] == [7]
    assert [row.source for row in slurm.rejected] == ["pyslurm"]


def test_a_queue_of_which_no_job_can_be_read_is_no_empty_queue() -> None:
    slurm = backend(module(told(submit_time=None)), told())
    with pytest.raises(SlurmUnreadable, match="no job that pyslurm told of can be read"):
        slurm.picture(NOW)
