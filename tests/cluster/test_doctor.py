"""The doctor on a real Slurm: silent where all is well, and each fault found that can be set there.

Several faults are set at once, by one change of configuration, and each is looked for by the name of its check.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.doctor import gather
from slurm_fairshare.cli.plugin import plugin_settings
from slurm_fairshare.config import Config
from slurm_fairshare.core.doctor import CHECKS, Finding, Severity, examine
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import utc_now
from slurm_fairshare.slurm.plugin import render
from slurm_fairshare.slurm.run import Runner
from slurm_fairshare.store.schema import upgrade
from tests.cluster.cluster import Cluster
from tests.cluster.product import Product

pytestmark = pytest.mark.cluster

LUA = "/etc/slurm/job_submit.lua"
SHIPPED = "/usr/local/share/slurm-fairshare/plugin/job_submit.lua"
DAEMON_UID = 2000
ERROR, WARNING, ADVICE = Severity.ERROR, Severity.WARNING, Severity.ADVICE
ALWAYS = {"known-bug"}
"""What the release under test brings with it."""


def worst(findings: Sequence[Finding]) -> Mapping[str, Severity]:
    """The worst severity by check."""
    found: dict[str, Severity] = {}
    for finding in findings:
        found[finding.name] = max(finding.severity, found.get(finding.name, ADVICE))
    return {name: severity for name, severity in found.items() if name not in ALWAYS}


@dataclass
class Patient:
    """A site with the product set up, and the doctor as the daemon's user would run it."""

    product: Product

    @property
    def cluster(self) -> Cluster:
        return self.product.cluster

    def app(self, **settings: object) -> App:
        changed = {"cluster": "lab", "database_url": self.product.config.database_url, **settings}
        later = changed.pop("later", timedelta(0))
        assert isinstance(later, timedelta)
        runner = Runner(tuple(self.cluster.command_prefix()))
        return App(Config(**changed), clock=lambda: utc_now() + later, runner=runner)  # type: ignore[arg-type]

    def findings(self, **settings: object) -> tuple[Finding, ...]:
        return examine(gather(self.app(**settings))).findings

    def names(self, **settings: object) -> Mapping[str, Severity]:
        return worst(self.findings(**settings))

    def sacctmgr(self, *lines: str) -> None:
        """Several changes in one process."""
        self.cluster.sh("slurmctld", ["sacctmgr", "-i"], stdin="\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def database(cluster: Cluster) -> Iterator[str]:
    """A database of our own in the cluster's Postgres, whose role is an ordinary one."""
    name = f"doctor_{secrets.token_hex(4)}"
    with psycopg.connect(cluster.database_url, autocommit=True) as connection:
        connection.execute(f"create database {name}")
        address = make_conninfo(cluster.database_url, dbname=name)
        upgrade(address)
        yield address
        connection.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="module")
def patient(cluster: Cluster, database: str) -> Iterator[Patient]:
    """Teams, budget, ladder, a tick, and the plugin as this site's settings render it.

    The tests share it: each takes back what it did, but for those of QOS and accounts, which come last.
    """
    cluster.reset()
    product = Product.on(cluster, database)
    product.fund()
    product.tick()
    patient = Patient(product)
    cluster.write(LUA, render(plugin_settings(patient.app().config, (DAEMON_UID,))))
    yield patient
    product.store.close()
    cluster.sh("slurmctld", ["ln", "-sfn", SHIPPED, LUA])
    cluster.sh("slurmctld", ["scontrol", "reconfigure"], check=False)
    cluster.reset()


def assert_found(found: Mapping[str, Severity], wanted: Mapping[str, Severity]) -> None:
    assert {name: found.get(name) for name in wanted} == dict(wanted), found
    TRIED.update(wanted)


TRIED: set[str] = set()
"""Every check that was seen to find its fault on the cluster."""


def newer_than(patient: Patient, *release: int) -> bool:
    return tuple(int(part) for part in patient.cluster.slurm.split(".")[:2]) >= release


def test_a_site_set_up_as_documented_is_green_and_nothing_is_changed(patient: Patient) -> None:
    patient.product.tick()
    before = patient.cluster.slurm_output("sacctmgr", "-nP", "list", "transactions")
    last_job = patient.cluster.slurm_output("scontrol", "show", "config").partition("NEXT_JOB_ID")[2].split()[1]
    examination = examine(gather(patient.app()))
    assert [finding for finding in examination.findings if finding.name not in ALWAYS] == []
    assert examination.left_out == ()
    assert len(examination.made) == len(CHECKS)
    assert patient.cluster.slurm_output("sacctmgr", "-nP", "list", "transactions") == before
    next_job = patient.cluster.slurm_output("scontrol", "show", "config").partition("NEXT_JOB_ID")[2].split()[1]
    assert next_job == last_job, "the probe took no job number"
    assert patient.cluster.slurm_output("squeue", "-h", "-a") == ""


def test_faults_of_order_and_scheduling(patient: Patient) -> None:
    with patient.cluster.configured(
        "PriorityFlags=INCR_ONLY,NO_NORMAL_TRES",
        "PriorityWeightAssoc=7",
        "PriorityWeightQOS=0",
        "PriorityWeightAge=50000",
        "PriorityWeightFairshare=10",
        "PriorityWeightJobSize=10",
        "PriorityWeightPartition=10",
        "PriorityWeightTRES=CPU=5",
        "PriorityCalcPeriod=5",
        "PreemptMode=REQUEUE,WITHIN",
        "JobRequeue=0",
        "KillWait=60",
        "SchedulerParameters=bf_interval=30,bf_max_job_user=5",
        "PreemptExemptTime=01:00:00",
        "AccountingStoreFlags=job_script" if newer_than(patient, 22, 5) else "AccountingStoreFlags=",
    ):
        found = patient.names()
    assert_found(
        found,
        {
            "assoc-normalised": ERROR,
            "qos-normalised": ERROR,
            "calculate-running": WARNING,
            "increase-only": ERROR,
            "weight-assoc": ERROR,
            "weight-qos": ERROR,
            "weight-age": ERROR,
            "weight-fairshare": ERROR,
            "weight-jobsize": ERROR,
            "weight-partition": ERROR,
            "weight-tres": ERROR,
            "calc-period": WARNING,
            "preempt-mode": ERROR,
            "job-requeue": ERROR,
            "kill-wait": WARNING,
            "bf-interval": WARNING,
            "bf-continue": WARNING,
            "bf-max-job-test": ADVICE,
            "bf-per-user-limits": WARNING,
            "youngest-first": ADVICE,
            "global-exempt-time": ADVICE,
            "store-comment": ADVICE,
            "repeated-lines": WARNING,
        },
    )


def test_other_plugins_and_limits(patient: Patient) -> None:
    lines = [
        "PriorityType=priority/basic",
        "PreemptType=preempt/partition_prio",
        "PreemptMode=SUSPEND,GANG",
        "AccountingStorageEnforce=associations",
        "SlurmctldParameters=enable_expedited_requeue",
        "JobSubmitPlugins=all_partitions",
    ]
    wanted = {
        "priority-type": ERROR,
        "preempt-type": ERROR,
        "preempt-mode": ERROR,
        "enforce": ERROR,
        "expedited-requeue": WARNING,
        "submit-plugins": ERROR,
        "plugin-silent": ERROR,
    }
    if not newer_than(patient, 26, 5):
        wanted["gang-without-exempt-time"] = ERROR
    if newer_than(patient, 23, 11):  # before, it takes a restart
        lines += ["SchedulerType=sched/builtin"]
        wanted |= {"scheduler-type": ERROR}
    if newer_than(patient, 23, 2):
        lines += ["PreemptParameters=min_exempt_priority=5", "MaxBatchRequeue=5"]
        wanted |= {"min-exempt-priority": ERROR}
    if newer_than(patient, 24, 5):
        wanted |= {"max-batch-requeue": WARNING}
    with patient.cluster.configured(*lines):
        found = patient.names()
    assert_found(found, wanted)


def test_plugin_files(patient: Patient) -> None:
    rendered = patient.cluster.sh("slurmctld", ["cat", LUA]).stdout
    for text, wanted in (
        ("function slurm_job_submit(a, b, c) return 0 end\nfunction slurm_job_modify(a, b, c, d) return 0 end\n",
         {"plugin-foreign": ERROR, "plugin-silent": ERROR}),
        (rendered.replace("cap = 28800", "cap = 3600").replace("trusted_uids = { 0, 2000 }", "trusted_uids = { 0 }"),
         {"plugin-settings": ERROR, "plugin-cap": ERROR, "plugin-trust": WARNING}),
        (rendered.replace("local DAY", "local  DAY"), {"plugin-version": WARNING}),
        ("this is no Lua\n", {"plugin-foreign": ERROR}),
    ):  # fmt: skip
        patient.cluster.sh("slurmctld", ["sh", "-c", f"rm -f {LUA}; cat > {LUA}"], stdin=text)
        time.sleep(1.1)  # slurmctld loads a script only where its date, in whole seconds, is later than the last one's
        patient.cluster.sh("slurmctld", ["touch", LUA])
        assert_found(patient.names(), wanted)
    patient.cluster.sh("slurmctld", ["rm", LUA])
    missing = [finding for finding in patient.findings() if finding.name == "unread"]
    assert [(one.severity, one.subject) for one in missing] == [(WARNING, "plugin")]
    patient.cluster.write(LUA, rendered)


def test_without_rights(patient: Patient) -> None:
    level = ("modify", "user", "where", "name=fairshare", "set")
    try:
        patient.cluster.sacctmgr(*level, "AdminLevel=Operator")
        assert_found(patient.names(), {"admin-level": ADVICE})
        patient.cluster.sacctmgr(*level, "AdminLevel=None")
        with patient.cluster.configured("PrivateData=jobs,usage"):
            assert_found(patient.names(), {"admin-level": ERROR, "private-data": ERROR})
    finally:
        patient.cluster.sacctmgr(*level, "AdminLevel=Administrator")


def test_settings_and_ticks(patient: Patient, postgres: str, empty_postgres: str) -> None:
    found = patient.names(
        cluster="elsewhere",
        contract={"qos_prefix": "FS-"},
        debug_lane={"max_gpus": 80, "max_gpus_per_team": 40},
        daemon={"interval": "10m", "first_poll": "1d", "push": False},
    )
    wanted = {
        "cluster-name": ERROR,
        "cluster-unregistered": ERROR,
        "prefix-case": ERROR,
        "rung-missing": ERROR,
        "lane-limits": ERROR,
        "interval-long": WARNING,
        "first-poll-short": WARNING,
        "push-off": ADVICE,
        "tree-empty": WARNING,
        "no-tick": WARNING,
    }
    assert_found(found, wanted)
    assert_found(patient.names(later=timedelta(minutes=10)), {"tick-old": ERROR})
    assert_found(patient.names(database_url=postgres), {"database-superuser": WARNING, "tree-empty": WARNING})
    assert_found(patient.names(database_url=empty_postgres), {"schema": ERROR, "unread": ERROR})
    dead = patient.findings(database_url="postgresql://fairshare@127.0.0.1:1/none")
    assert {one.subject for one in dead if one.name == "unread"} >= {"database,tree,tick"}


def test_a_job_that_only_slurmdbd_believes_in(patient: Patient) -> None:
    job = patient.cluster.sbatch("alice", "--gres=gpu:1", script="sleep 1")
    patient.cluster.wait_state(job, "COMPLETED")
    mariadb = ["mariadb", "-hmariadb", "-uslurm", "-pslurm", "slurm_acct_db", "-e"]
    assert patient.names().get("runaway-jobs") is None
    # under another number, as slurmctld remembers this one
    lost = "update lab_job_table set time_end = 0, state = 1, id_job = 999999 where id_job = "
    found = "update lab_job_table set time_end = time_start + 1, state = 3 where id_job = 999999"
    patient.cluster.sh("mariadb", [*mariadb, lost + str(int(job))])
    try:
        (finding,) = [one for one in patient.findings() if one.name == "runaway-jobs"]
        assert "999999" in finding.wrong
        TRIED.add("runaway-jobs")
    finally:
        patient.cluster.sh("mariadb", [*mariadb, found])


def test_a_full_queue(patient: Patient) -> None:
    with patient.cluster.configured("SchedulerParameters=bf_interval=10,bf_continue,bf_max_job_test=2"):
        for _ in range(3):
            patient.cluster.sbatch("alice", "--hold", "--gres=gpu:1", "--comment", "min_runtime=1h")
        found = patient.names()
    patient.cluster.cancel_all_jobs()
    assert_found(found, {"bf-max-job-test": WARNING})


def test_gpus_that_are_not_tracked(patient: Patient) -> None:
    """Some releases go on with what they once tracked: then there is no fault."""
    with patient.cluster.configured("AccountingStorageTRES=gres/gpu:h100"):
        found = patient.names()
        config = patient.cluster.slurm_output("scontrol", "show", "config")
    (line,) = [line for line in config.splitlines() if line.startswith("AccountingStorageTRES")]
    tracked = "gres/gpu" in line.partition("=")[2].strip().split(",")
    assert_found(found, {} if tracked else {"gpu-tres": ERROR})
    assert ("gpu-tres" in found) is not tracked


def test_daemons_that_are_down(patient: Patient) -> None:
    patient.cluster.stop("slurmdbd")
    try:
        unread = {one.subject for one in patient.findings() if one.name == "unread"}
    finally:
        patient.cluster.start("slurmdbd")
    assert any("accounting" in subject and "qos" in subject for subject in unread)
    assert not any("config" in subject.split(",") for subject in unread)


def test_faults_of_accounts(patient: Patient) -> None:
    cluster = patient.cluster
    cluster.add_account("guests", "frank")
    cluster.add_account("lonely")
    cluster.sacctmgr("add", "user", "nobody9", "account=vision")
    leaves = [Share(name, 1, name) for name in ("vision", "language", "robotics", "ghost", "lonely")]
    patient.product.store.add_changeset("ada", "more", utc_now(), {"lab": leaves})
    patient.sacctmgr(
        "modify account where name=guests set Priority=1999900000",
        "modify user where name=alice account=vision set Priority=7",
        "modify user where name=bob account=vision set qos-=fs-4h",
        "modify account where name=language set qos-=fs-8h",
        "modify account where name=robotics set DefaultQOS=fs-1h",
    )
    found = patient.names()
    assert_found(
        found,
        {
            "account-unknown": WARNING,
            "account-unbudgeted": ADVICE,
            "account-empty": ADVICE,
            "access": ERROR,
            "default-qos": WARNING,
            "user-access": ERROR,
            "user-priority": WARNING,
            "foreign-priority": WARNING,
            "user-without-uid": WARNING,
        },
    )


def test_faults_of_qos(patient: Patient) -> None:
    patient.sacctmgr(
        "modify qos where name=fs-1h set GraceTime=0 PreemptExemptTime=00:10:00 UsageFactor=0.5",
        "modify qos where name=fs-2h set Preempt+=normal PreemptMode=cancel Flags=OverPartQOS",
        "modify qos where name=fs-15m set Priority=0",
        "modify qos where name=fs-8h set Preempt-=fs-unallocated",
        "add qos vip,fs-12h,parted,odd",
        "modify qos where name=vip set Preempt=fs-4h,fs-12h PreemptMode=suspend",
        "modify qos where name=odd set PreemptMode=within",
        "modify qos where name=parted set PreemptExemptTime=0",
    )
    with patient.cluster.configured(
        "PartitionName=fast Nodes=n1 PriorityTier=10 QOS=parted DenyQos=fs-8h MaxTime=30-00:00:00 State=UP"
    ):
        findings = patient.findings(fairshare={"half_life": "2d"})
    assert_found(
        worst(findings),
        {
            "rung-protection": ERROR,
            "usage-factor": WARNING,
            "rung-preempts": ERROR,
            "rung-mode": ERROR,
            "over-part-qos": WARNING,
            "rung-differs": WARNING,
            "foreign-preempts-rung": WARNING,
            "rung-retired": WARNING,
            "qos-mode": WARNING,
            "partition-tier": WARNING,
            "partition-qos-exempt": ERROR,
            "partition-qos-list": ERROR,
            "lookback-short": WARNING,
            "half-life-short": WARNING,
        },
    )
    said = " ".join(finding.wrong for finding in findings)
    for words in (
        "QOS fs-1h has PreemptExemptTime 10m instead of 1h",
        "QOS fs-1h has GraceTime 0 instead of 1h",
        "QOS fs-2h may preempt normal",
        "QOS fs-8h may not preempt fs-unallocated",
        "QOS odd has PreemptMode WITHIN alone",
        "QOS vip has PreemptMode SUSPEND",
        "fs-12h is no rung of the settings. It stands in the Preempt list of vip",
    ):
        assert words in said


def test_most_checks_were_seen_to_find_their_fault_here(request: pytest.FixtureRequest) -> None:
    """At the end: with the file run as a whole, at least 60 of the checks have met their fault on a real Slurm."""
    if len([item for item in request.session.items if item.path == request.path]) < 13:
        pytest.fail("this counts what the other tests of the file found: run the file as a whole", pytrace=False)
    left: Sequence[str] = sorted({check.name for check in CHECKS} - TRIED)
    assert len(TRIED - {"unread"}) >= 60, left
