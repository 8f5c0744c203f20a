"""plan, apply and --remove on a real Slurm: twice, cut off half-way, beside foreign settings, with jobs in the way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from click.testing import CliRunner, Result

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.core.plan import BAND, Held, SetPriority, plan, removal
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.daemon.tick import recompute
from slurm_fairshare.slurm.run import Runner
from tests.cluster.cluster import Cluster
from tests.cluster.product import TEAMS, Product

pytestmark = pytest.mark.cluster

PREFIX = "fs-"
ONE_GPU = ("-N1", "--gpus-per-node=1")
IN_USE_REFUSED = (25, 5)
"""From this release on Slurm itself refuses to remove a QOS that a job uses."""


@dataclass
class Desk:
    """Somebody at the keyboard of a cluster with three teams, a budget, and settings of others."""

    product: Product

    @property
    def cluster(self) -> Cluster:
        return self.product.cluster

    def run(self, *words: str, rungs: tuple[str, ...] = ()) -> Result:
        """A command in a process of its own, as far as what it remembers goes."""
        config = self.product.config
        if rungs:
            config = config.model_copy(
                update={"contract": type(config.contract)(rungs=rungs)}  # type: ignore[arg-type]
            )
        runner = Runner(tuple(self.cluster.command_prefix()))
        app = App(config, runner=runner)
        result = CliRunner().invoke(main, list(words), obj=app, env={"COLUMNS": ""})
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def says(self, *words: str, rungs: tuple[str, ...] = ()) -> str:
        result = self.run(*words, rungs=rungs)
        assert result.exit_code == 0, result.output
        return result.stdout

    def held(self) -> Held:
        return self.product.reopened().slurm.held(refresh=True)

    def transactions(self) -> int:
        """How many changes slurmdbd has ever carried out: nothing is written without one."""
        return len(self.cluster.slurm_output("sacctmgr", "-nP", "list", "transactions", "format=ID").splitlines())

    def foreign(self) -> list[str]:
        """What others have set, as sacctmgr tells it."""
        qos = self.cluster.slurm_output(
            "sacctmgr", "-nP", "show", "qos", "format=Name,Priority,GraceTime,Preempt,PreemptMode,MaxTRESPA,Flags"
        )
        assocs = self.cluster.slurm_output(
            "sacctmgr", "-nP", "show", "assoc", "format=Account,User,Fairshare,MaxJobs,GrpTRES,MaxTRES,Priority,QOS"
        )
        return sorted(
            line
            for line in [*qos.splitlines(), *assocs.splitlines()]
            if line.split("|")[0] in ("normal", "long", "guests", "operators", "root")
        )

    def limits(self) -> str:
        """What others have set on the teams' own associations."""
        return self.cluster.slurm_output(
            "sacctmgr", "-nP", "show", "assoc", "account=vision", "format=Account,User,Fairshare,MaxJobs,GrpTRES"
        )


@pytest.fixture
def desk(clean_cluster: Cluster, postgres: str) -> Iterator[Desk]:
    product = Product.on(clean_cluster, postgres)
    product.fund()
    clean_cluster.add_account("guests", "frank")
    clean_cluster.sh(
        "slurmctld",
        ["sacctmgr", "-i"],
        stdin=(
            "add qos long\n"
            "modify qos where name=long set Priority=9 Preempt=normal MaxTRESPerAccount=gres/gpu=4 Flags=DenyOnLimit\n"
            "modify account where name=guests set Priority=7 GrpTRES=gres/gpu=2 qos+=long\n"
            "modify account where name=vision set MaxJobs=50 qos+=long\n"
            "modify user where name=alice account=vision set MaxJobs=5 fairshare=3\n"
        ),
    )
    yield Desk(product)
    product.store.close()


def changes_of(desk: Desk) -> tuple[object, ...]:
    _, ranking = recompute(desk.product.store, desk.product.config, utc_now())
    return plan(ranking, desk.product.config.ladder, desk.product.config.lane, desk.held())


def assert_protected(held: Held) -> None:
    """Every rung that an account may use protects for its minimum runtime, and may stop unallocated work only."""
    usable = {name for has in held.accounts.values() for name in has.qos if name.startswith(PREFIX)}
    lengths = {"fs-unallocated": 0, "fs-15m": 900, "fs-1h": 3600, "fs-2h": 7200, "fs-4h": 14_400, "fs-8h": 28_800}
    for name in usable:
        assert held.qos[name].exempt >= lengths[name]
        assert held.qos[name].grace >= lengths[name]
        assert held.qos[name].preempts <= {"fs-unallocated"}


def test_a_second_run_writes_nothing(desk: Desk) -> None:
    others, limits = desk.foreign(), desk.limits()
    desk.product.tick()
    assert desk.foreign() == others
    assert desk.limits() == limits
    before = desk.transactions()
    assert "Nothing to change" in desk.says("apply")
    assert "Nothing to change" in desk.says("plan")
    again = desk.product.reopened()
    assert again.tick().changes == ()
    assert again.slurm.calls["sacctmgr"] == 0
    assert desk.transactions() == before


def test_a_tick_that_moves_every_team_starts_one_sacctmgr(desk: Desk) -> None:
    desk.product.tick()
    desk.product.tick()
    shares = tuple(Share(name, weight, name) for name, weight in zip(TEAMS, (0.0, 1.0, 2.0), strict=True))
    desk.product.store.add_changeset("ada", "turned", utc_now(), {"lab": shares})
    calls = desk.product.slurm.calls["sacctmgr"]
    for label, team in enumerate(("vision", "language", "robotics"), start=1):
        desk.cluster.sacctmgr("modify", "account", "where", f"name={team}", "set", f"Priority={label}")
    report = desk.product.tick()
    assert [type(change) for change in report.changes] == [SetPriority] * 3
    assert desk.product.slurm.calls["sacctmgr"] - calls == 1
    held = desk.held()
    assert all((held.accounts[team].priority or 0) % BAND == 0 for team in TEAMS)
    assert desk.product.tick().changes == ()


def test_cut_off_anywhere_it_protects_and_the_next_run_completes_it(desk: Desk) -> None:
    whole = changes_of(desk)
    cuts = (1, 6, 7, 9, 12, 13, len(whole))
    done = 0
    for cut in cuts:
        desk.product.slurm.carry_out(whole[done:cut])  # type: ignore[arg-type]
        done = cut
        assert_protected(desk.held())
    assert changes_of(desk) == ()
    # and from a cut in the middle of another start: two rungs lost, one weakened, one access gone
    desk.cluster.sh(
        "slurmctld",
        ["sacctmgr", "-i"],
        stdin=(
            "modify account where name=language set qos-=fs-4h,fs-8h\n"
            "remove qos where name=fs-8h\n"
            "modify qos where name=fs-1h set GraceTime=0 PreemptExemptTime=0 Preempt+=normal\n"
        ),
    )
    assert len(changes_of(desk)) > 2
    desk.product.slurm.carry_out(changes_of(desk)[:2])  # type: ignore[arg-type]
    desk.product.tick()
    assert_protected(desk.held())
    assert changes_of(desk) == ()


def test_removal_takes_all_of_ours_and_nothing_else(desk: Desk) -> None:
    others, limits = desk.foreign(), desk.limits()
    desk.product.tick()
    desk.cluster.sacctmgr("modify", "qos", "where", "name=long", "set", "Preempt+=fs-1h")
    assert "remove QOS fs-4h" in desk.says("plan", "--remove")
    desk.says("apply", "--remove")
    held = desk.held()
    assert not [name for name in held.qos if name.startswith(PREFIX)]
    assert all(held.accounts[team].priority is None for team in TEAMS)
    assert all(not has.default_qos for has in held.accounts.values())
    assert desk.foreign() == others
    assert desk.limits() == limits
    before = desk.transactions()
    assert "Nothing to take out" in desk.says("apply", "--remove")
    assert desk.transactions() == before
    desk.product.tick()
    assert changes_of(desk) == (), "and it can be put back"


def test_removal_with_jobs_in_the_way_keeps_what_they_stand_on(desk: Desk) -> None:
    desk.product.tick()
    running = desk.cluster.sbatch("alice", *ONE_GPU, "--comment", "min_runtime=4h")
    waiting = desk.cluster.sbatch("alice", *ONE_GPU, "--hold", "--comment", "min_runtime=1h")
    desk.cluster.wait_state(running, "RUNNING")
    result = desk.run("apply", "--remove")
    assert result.exit_code == 1
    for name in ("fs-4h", "fs-1h"):
        assert f"{name} stays for now, and the access to it: 1 job is still in it" in result.stdout
    assert "not everything could be taken out" in result.stderr
    held = desk.held()
    assert {name for name in held.qos if name.startswith(PREFIX)} == {"fs-1h", "fs-4h"}
    assert held.qos["fs-4h"].exempt == 4 * 3600
    assert desk.cluster.state(running) == "RUNNING"
    desk.cluster.slurm_output("scontrol", "release", str(int(waiting)))
    desk.cluster.wait_state(waiting, "RUNNING")
    desk.cluster.cancel_all_jobs()
    desk.says("apply", "--remove")
    assert not [name for name in desk.held().qos if name.startswith(PREFIX)]


def test_a_removal_that_slurm_refuses_says_what_to_do(desk: Desk) -> None:
    """As where a job was submitted in the moment between looking and removing."""
    release = tuple(int(part) for part in desk.cluster.slurm.split(".")[:2])
    desk.product.tick()
    job = desk.cluster.sbatch("alice", *ONE_GPU, "--comment", "min_runtime=4h")
    desk.cluster.wait_state(job, "RUNNING")
    blind = removal(tuple(TEAMS), desk.held(), PREFIX)
    if release < IN_USE_REFUSED:  # it removes a QOS under a job's feet; only that `apply` looks before prevents it
        desk.product.slurm.carry_out(blind)
        assert not [name for name in desk.held().qos if name.startswith(PREFIX)]
        return
    with pytest.raises(Exception, match=r"jobs still use it.*scontrol update"):
        desk.product.slurm.carry_out(blind)
    assert desk.cluster.state(job) == "RUNNING"


def test_a_rung_taken_out_of_the_settings_is_retired_when_its_jobs_have_left(desk: Desk) -> None:
    shorter = ("15m", "1h", "4h", "8h")
    desk.product.tick()
    job = desk.cluster.sbatch("alice", *ONE_GPU, "--comment", "min_runtime=2h")
    desk.cluster.wait_state(job, "RUNNING")
    shown = desk.says("apply", rungs=shorter)
    assert "fs-2h stays for now" in shown
    held = desk.held()
    assert (held.qos["fs-2h"].exempt, held.qos["fs-2h"].grace) == (7200, 7200)
    assert "fs-2h" in held.accounts["vision"].qos
    desk.cluster.cancel_all_jobs()
    assert "remove QOS fs-2h" in desk.says("apply", rungs=shorter)
    held = desk.held()
    assert "fs-2h" not in held.qos
    assert all("fs-2h" not in has.qos for has in held.accounts.values())
    assert held.accounts["vision"].priority
    assert "Nothing to change" in desk.says("apply", rungs=shorter)


def test_with_no_tick_of_late_apply_leaves_the_order_alone(desk: Desk) -> None:
    assert "Priorities are left to the next tick" in desk.says("apply")
    held = desk.held()
    assert set(held.qos) >= {"fs-1h", "fs-unallocated"}
    assert all(held.accounts[team].priority is None for team in TEAMS)
