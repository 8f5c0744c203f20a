"""Every check: silent on a healthy site, and loud where its fault is the only one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from typing import Any

import pytest

from slurm_fairshare.core.contract import DebugLane, Ladder
from slurm_fairshare.core.doctor import CHECKS, UNREAD, Finding, Severity, examine
from slurm_fairshare.core.doctor.facts import (
    Clocks,
    Configuration,
    DatabaseFacts,
    Facts,
    HeldQos,
    NodeFacts,
    Partition,
    PluginFile,
    Rights,
    Source,
    TickState,
    Waiting,
    Wanted,
    release_of,
)
from slurm_fairshare.core.doctor.health import BUGS
from slurm_fairshare.core.plan import BAND, Association, Held, desired_qos
from slurm_fairshare.core.tree import Tree
from slurm_fairshare.slurm.plugin import PluginSettings, render
from tests.core.build import LADDER, NOW, tree

ERROR, WARNING, ADVICE = Severity.ERROR, Severity.WARNING, Severity.ADVICE
RUNGS = frozenset(rung.name for rung in LADDER.rungs)
PARAMETERS = "bf_interval=10,bf_continue,bf_max_job_test=3000,preempt_youngest_first"

CONFIG = {
    "AccountingStorageEnforce": "associations,limits,qos",
    "AccountingStorageTRES": "cpu,mem,energy,node,billing,gres/gpu,gres/gpu:h100",
    "AccountingStorageType": "accounting_storage/slurmdbd",
    "AccountingStoreFlags": "job_comment",
    "AuthInfo": "cred_expire=10",
    "ClusterName": "lab",
    "JobRequeue": "1",
    "JobSubmitPlugins": "lua",
    "KillWait": "10 sec",
    "MaxBatchRequeue": "1000000",
    "PreemptExemptTime": "00:00:00",
    "PreemptMode": "REQUEUE",
    "PreemptParameters": "(null)",
    "PreemptType": "preempt/qos",
    "PriorityCalcPeriod": "00:01:00",
    "PriorityFlags": "CALCULATE_RUNNING,NO_NORMAL_ALL",
    "PrioritySiteFactorPlugin": "(null)",
    "PriorityType": "priority/multifactor",
    "PriorityWeightAge": "19999",
    "PriorityWeightAssoc": "1",
    "PriorityWeightFairShare": "0",
    "PriorityWeightJobSize": "0",
    "PriorityWeightPartition": "0",
    "PriorityWeightQOS": "1",
    "PriorityWeightTRES": "(null)",
    "PrivateData": "none",
    "SchedulerParameters": PARAMETERS,
    "SchedulerType": "sched/backfill",
    "SlurmctldParameters": "(null)",
    "SLURM_VERSION": "24.11.7",
}
ACCOUNTING = {
    "MaxQueryTimeRange": "UNLIMITED",
    "PrivateData": "none",
    "PurgeJobAfter": "NONE",
    "SLURMDBD_VERSION": "24.11.7",
}
PLUGIN = render(PluginSettings(version="1", trusted_uids=(0, 2000)))
TREE = tree(vision=3, language=1)


def _held(**changes: Association) -> Held:
    """Both accounts as `apply` leaves them, with a user each; a keyword replaces one by its account or user."""
    found = {
        "root": Association("root", "", None, frozenset({"normal"})),
        "vision": Association("vision", "", 9 * BAND, RUNGS, "fs-unallocated"),
        "alice": Association("vision", "alice", 9 * BAND, RUNGS, "fs-unallocated"),
        "language": Association("language", "", 5 * BAND, RUNGS, "fs-unallocated"),
        "dan": Association("language", "dan", 5 * BAND, RUNGS, "fs-unallocated"),
        "fairshare": Association("operators", "fairshare", None, frozenset({"normal"})),
    }
    return Held({qos.name: qos for qos in desired_qos(LADDER, DebugLane())}, tuple({**found, **changes}.values()))


def _qos(**changes: HeldQos) -> dict[str, HeldQos]:
    below = frozenset({"fs-unallocated"})
    rungs = {
        rung.name: HeldQos(
            rung.name, rung.min_runtime, rung.min_runtime, below if rung.min_runtime else frozenset(),
            frozenset({"cluster"}),
        )
        for rung in LADDER.rungs
    }  # fmt: skip
    others = {"normal": HeldQos("normal", None, 0, modes=frozenset({"cluster"}))}
    found = {**rungs, **others}
    return {**found, **{one.name: one for one in changes.values()}}


HEALTHY = Facts(
    now=NOW,
    wanted=Wanted(cluster="lab"),
    config=Configuration(CONFIG),
    lines={"priorityflags": ("NO_NORMAL_ASSOC,NO_NORMAL_QOS,CALCULATE_RUNNING",), "jobsubmitplugins": ("lua",)},
    partitions=(Partition("gpu", frozenset({"n1", "n2"}), max_time=7 * 86_400),),
    nodes=(
        NodeFacts("n1", frozenset({"IDLE"}), "gpu:h100:8", {"cpu": "64", "gres/gpu": "8", "gres/gpu:h100": "8"}),
        NodeFacts("n2", frozenset({"DOWN", "DRAIN"}), "gpu:h100:8(S:0-1)", {"gres/gpu": "8"}, "bad GPU"),
        NodeFacts("login", frozenset({"IDLE"}), "", {"cpu": "8"}),
    ),
    queue=Waiting(12, {"fs-4h": 3}),
    held=_held(),
    qos=_qos(),
    users={"alice": True, "dan": True},
    accounting=Configuration(ACCOUNTING),
    clusters=frozenset({"lab", "other"}),
    rights=Rights("fairshare", 2000, "head1", "Administrator"),
    plugin=PluginFile("/etc/slurm/job_submit.lua", PLUGIN, PLUGIN, frozenset({0, 2000})),
    probe="sbatch: error: fairshare: min_runtime=9999d is over the cap of 8h: write min_runtime=8h or less",
    database=DatabaseFacts("0004", "0004", frozenset({"0001", "0004"}), False, "fairshare"),
    tree=TREE,
    tick=TickState(NOW - timedelta(seconds=50)),
    clocks=(Clocks("slurmctld", 0.4, 0.6), Clocks("Postgres", -0.1)),
)

Change = Callable[[Facts], Facts]


@dataclass(frozen=True)
class Case:
    """One fault: the check that must find it, how bad it is, a word of what is said, and the fault itself."""

    check: str
    severity: Severity
    says: str
    change: Change
    also: frozenset[str] = frozenset()
    """Other checks that cannot but find it too."""


def conf(**values: str) -> Change:
    return lambda facts: replace(facts, config=Configuration({**facts.config.values, **values}))


def dbd(**values: str) -> Change:
    return lambda facts: replace(facts, accounting=Configuration({**facts.accounting.values, **values}))


def wanted(**values: Any) -> Change:
    return lambda facts: replace(facts, wanted=replace(facts.wanted, **values))


def qos(*changed: HeldQos) -> Change:
    return lambda facts: replace(facts, qos={**facts.qos, **{one.name: one for one in changed}})


def rung(name: str, **values: Any) -> Change:
    return lambda facts: replace(facts, qos={**facts.qos, name: replace(facts.qos[name], **values)})


def held(**changes: Association) -> Change:
    return lambda facts: replace(facts, held=_held(**changes))


def with_lane(lane: DebugLane | None) -> Change:
    """The site has another lane, and `apply` has been run since."""
    rungs = {qos.name: qos for qos in desired_qos(LADDER, lane)}
    return both(wanted(lane=lane), put(held=Held(rungs, _held().associations)))


def put(**values: Any) -> Change:
    return lambda facts: replace(facts, **values)


def both(*changes: Change) -> Change:
    def apply(facts: Facts) -> Facts:
        for change in changes:
            facts = change(facts)
        return facts

    return apply


def partition(**values: Any) -> Change:
    return lambda facts: replace(facts, partitions=(replace(facts.partitions[0], **values),))


def plugin(text: str) -> Change:
    return lambda facts: replace(facts, plugin=replace(facts.plugin, text=text))


CASES = (
    Case("priority-type", ERROR, "priority/basic", conf(PriorityType="priority/basic")),
    Case(
        "assoc-normalised",
        ERROR,
        "lacks NO_NORMAL_ASSOC",
        both(conf(PriorityFlags="NO_NORMAL_ALL,CALCULATE_RUNNING"), put(lines={"priorityflags": ("NO_NORMAL_QOS",)})),
    ),
    Case("qos-normalised", ERROR, "debug lane is on", conf(PriorityFlags="CALCULATE_RUNNING,NO_NORMAL_ASSOC")),
    Case("calculate-running", WARNING, "lacks CALCULATE_RUNNING", conf(PriorityFlags="NO_NORMAL_ALL")),
    Case("increase-only", ERROR, "INCR_ONLY", conf(PriorityFlags="INCR_ONLY,CALCULATE_RUNNING,NO_NORMAL_ALL")),
    Case("weight-assoc", ERROR, "is 1000", conf(PriorityWeightAssoc="1000")),
    Case("weight-qos", ERROR, "is 0", conf(PriorityWeightQOS="0")),
    Case("weight-qos", ERROR, "is 5", both(conf(PriorityWeightQOS="5"), with_lane(None))),
    Case("weight-age", ERROR, "is 20000", conf(PriorityWeightAge="20000")),
    Case("weight-fairshare", ERROR, "is 100", conf(PriorityWeightFairShare="100")),
    Case("weight-fairshare", ADVICE, "is 100", conf(PriorityWeightFairShare="100", PriorityWeightAge="10000")),
    Case("weight-jobsize", ERROR, "is 1", conf(PriorityWeightJobSize="1")),
    Case("weight-partition", ERROR, "is 3000", conf(PriorityWeightPartition="3000")),
    Case("weight-tres", ERROR, "GRES/gpu=50000", conf(PriorityWeightTRES="CPU=1,GRES/gpu=50000")),
    Case("site-factor-plugin", ERROR, "site_factor/none", conf(PrioritySiteFactorPlugin="site_factor/none")),
    Case("calc-period", WARNING, "00:05:00", conf(PriorityCalcPeriod="00:05:00")),
    Case(
        "partition-tier",
        WARNING,
        "PriorityTier 10",
        put(partitions=(*HEALTHY.partitions, Partition("vip", frozenset({"n2"}), priority_tier=10))),
    ),
    Case("preempt-type", ERROR, "preempt/none", conf(PreemptType="preempt/none")),
    Case("preempt-mode", ERROR, "OFF", conf(PreemptMode="OFF")),
    Case("preempt-mode", ERROR, "CANCEL", conf(PreemptMode="CANCEL")),
    Case("preempt-mode", ERROR, "WITHIN", conf(PreemptMode="REQUEUE,WITHIN")),
    Case(
        "gang-without-exempt-time",
        ERROR,
        "SUSPEND,GANG",
        conf(PreemptType="preempt/partition_prio", PreemptMode="GANG,SUSPEND"),
        frozenset({"preempt-type", "preempt-mode"}),
    ),
    Case("job-requeue", ERROR, "is 0", conf(JobRequeue="0")),
    Case("kill-wait", WARNING, "120 seconds", conf(KillWait="120 sec")),
    Case("kill-wait", ADVICE, "30 seconds", conf(KillWait="30 sec")),
    Case("max-batch-requeue", WARNING, "is 5", conf(MaxBatchRequeue="5")),
    Case(
        "requeue-delay",
        ADVICE,
        "waits 120 seconds",
        both(conf(SLURM_VERSION="25.11.8", AuthInfo="(null)"), dbd(SLURMDBD_VERSION="25.11.8")),
    ),
    Case(
        "expedited-requeue",
        WARNING,
        "enable_expedited_requeue",
        both(
            conf(SLURM_VERSION="25.11.8", SlurmctldParameters="enable_expedited_requeue,idle_on_node_suspend"),
            dbd(SLURMDBD_VERSION="25.11.8"),
        ),
    ),
    Case("min-exempt-priority", ERROR, "=5000", conf(PreemptParameters="youngest_first,min_exempt_priority=5000")),
    Case("youngest-first", ADVICE, "youngest_first", conf(SchedulerParameters=PARAMETERS.rpartition(",")[0])),
    Case(
        "global-exempt-time",
        ERROR,
        "01:00:00",
        both(conf(PreemptExemptTime="01:00:00"), rung("fs-unallocated", exempt=None)),
    ),
    Case("global-exempt-time", ADVICE, "01:00:00", conf(PreemptExemptTime="01:00:00")),
    Case("scheduler-type", ERROR, "sched/builtin", conf(SchedulerType="sched/builtin")),
    Case("bf-interval", WARNING, "30 seconds", conf(SchedulerParameters=PARAMETERS.replace("bf_interval=10,", ""))),
    Case("bf-continue", WARNING, "lacks", conf(SchedulerParameters=PARAMETERS.replace("bf_continue,", ""))),
    Case("bf-max-job-test", WARNING, "50000 jobs wait", put(queue=Waiting(50_000))),
    Case("bf-max-job-test", ADVICE, "500", conf(SchedulerParameters=PARAMETERS.replace("bf_max_job_test=3000,", ""))),
    Case(
        "bf-per-user-limits", WARNING, "bf_max_job_user=5", conf(SchedulerParameters=f"{PARAMETERS},bf_max_job_user=5")
    ),
    Case(
        "repeated-lines",
        WARNING,
        "of the earlier ones throttle is lost",
        put(lines={"jobsubmitplugins": ("throttle", "lua")}),
    ),
    Case("accounting-storage", ERROR, "not set", conf(AccountingStorageType="(null)")),
    Case("enforce", ERROR, "lacks limits, qos", conf(AccountingStorageEnforce="associations")),
    Case("gpu-tres", ERROR, "does not list gres/gpu", conf(AccountingStorageTRES="cpu,mem,node,billing")),
    Case("gpu-tres", ERROR, "only gres/gpu:h100", conf(AccountingStorageTRES="cpu,gres/gpu:h100")),
    Case(
        "gpus-uncounted",
        ERROR,
        "n3",
        put(nodes=(*HEALTHY.nodes, NodeFacts("n3", frozenset({"IDLE"}), "gpu:8", {"cpu": "64"}))),
    ),
    Case(
        "gpu-types",
        ADVICE,
        "not tracked: a100",
        put(nodes=(*HEALTHY.nodes, NodeFacts("n3", frozenset({"IDLE"}), "gpu:a100:8", {"gres/gpu": "8"}))),
    ),
    Case("store-comment", ADVICE, "lacks job_comment", conf(AccountingStoreFlags="job_script")),
    Case("usage-factor", WARNING, "fs-4h has UsageFactor 0.5", rung("fs-4h", usage_factor=0.5)),
    Case("cluster-name", ERROR, '"other"', conf(ClusterName="other")),
    Case("cluster-unregistered", ERROR, "it knows: other", put(clusters=frozenset({"other"}))),
    Case("purge", WARNING, "PurgeJobAfter is 3days", dbd(PurgeJobAfter="3days")),
    Case(
        "max-query-range",
        WARNING,
        "04:00:00",
        both(dbd(MaxQueryTimeRange="04:00:00"), put(rights=Rights("fairshare", 2000, "head1", "None"))),
        frozenset({"admin-level"}),
    ),
    Case("runaway-jobs", WARNING, "2 runaway jobs: 17, 18", put(runaways=("17", "18"))),
    Case("slurmdbd-backlog", WARNING, "5000 messages", put(backlog=5000)),
    Case("lookback-short", WARNING, "run for 14d", partition(max_time=14 * 86_400)),
    Case("half-life-short", WARNING, "every 2d", wanted(half_life=timedelta(days=2))),
    Case("first-poll-short", WARNING, "is 1d", wanted(first_poll=timedelta(days=1))),
    Case("submit-plugins", ERROR, "not set", conf(JobSubmitPlugins="(null)")),
    Case("plugin-foreign", ERROR, "none of ours", plugin("function slurm_job_submit() return 0 end")),
    Case("plugin-version", WARNING, "code differs", plugin(PLUGIN.replace("local DAY", "local  DAY"))),
    Case("plugin-settings", ERROR, "in cap", plugin(PLUGIN.replace("cap = 28800", "cap = 3600"))),
    Case("plugin-settings", ERROR, "in rungs", plugin(PLUGIN.replace('{ name = "fs-2h", seconds = 7200 },', ""))),
    Case("plugin-settings", ERROR, "in partitions", plugin(PLUGIN.replace("partitions = {}", 'partitions = { "a" }'))),
    Case("plugin-settings", ADVICE, 'says "0"', plugin(PLUGIN.replace('version = "1"', 'version = "0"'))),
    Case(
        "plugin-trust",
        WARNING,
        "uid 2000 (fairshare)",
        put(plugin=replace(HEALTHY.plugin, trusted_uids=frozenset({0}))),
    ),
    Case("plugin-silent", ERROR, "Invalid license", put(probe="allocation failure: Invalid license specification")),
    Case("plugin-cap", ERROR, "at 4h", put(probe=HEALTHY.probe.replace("8h", "4h"))),
    Case(
        "rung-missing",
        ERROR,
        "no QOS fs-2h",
        put(qos={name: one for name, one in HEALTHY.qos.items() if name != "fs-2h"}),
    ),
    Case("rung-protection", ERROR, "PreemptExemptTime 1h instead of 4h", rung("fs-4h", exempt=3600)),
    Case("rung-protection", ERROR, "GraceTime 0 instead of 4h", rung("fs-4h", grace=0)),
    Case("rung-protection", ERROR, "not set instead of 4h", rung("fs-4h", exempt=None)),
    Case("rung-protection", ERROR, "10m instead of 0", rung("fs-unallocated", exempt=600)),
    Case("rung-preempts", ERROR, "may preempt normal", rung("fs-1h", preempts=frozenset({"fs-unallocated", "normal"}))),
    Case("rung-preempts", ERROR, "may not preempt fs-unallocated", rung("fs-1h", preempts=frozenset())),
    Case(
        "rung-differs",
        WARNING,
        "Priority none instead of 2000000000",
        put(
            held=Held(
                {**HEALTHY.held.qos, "fs-15m": replace(HEALTHY.held.qos["fs-15m"], priority=0)},
                HEALTHY.held.associations,
            )
        ),
    ),
    Case("over-part-qos", WARNING, "OverPartQOS", rung("fs-1h", flags=frozenset({"denyonlimit", "overpartqos"}))),
    Case("rung-mode", ERROR, "CANCEL", rung("fs-unallocated", modes=frozenset({"cancel"}))),
    Case("qos-mode", WARNING, "WITHIN alone", qos(HeldQos("odd", modes=frozenset({"within"})))),
    Case("qos-mode", WARNING, "SUSPEND", qos(HeldQos("odd", modes=frozenset({"suspend"})))),
    Case("foreign-preempts-rung", WARNING, "fs-4h", qos(HeldQos("vip", preempts=frozenset({"fs-4h", "normal"})))),
    Case("rung-retired", WARNING, "fs-12h is no rung", qos(HeldQos("fs-12h"))),
    Case(
        "rung-retired",
        ADVICE,
        "2 jobs are still in it",
        both(qos(HeldQos("fs-12h")), put(queue=Waiting(12, {"fs-12h": 2}))),
    ),
    Case(
        "rung-retired", WARNING, "list of vip", qos(HeldQos("fs-12h"), HeldQos("vip", preempts=frozenset({"fs-12h"})))
    ),
    Case(
        "prefix-case",
        ERROR,
        '"FS-"',
        wanted(prefix="FS-"),
    ),
    Case("qos-case", WARNING, "FS-4H", qos(HeldQos("FS-4H"))),
    Case(
        "lane-limits",
        ERROR,
        "max_gpus is 64",
        with_lane(DebugLane(max_gpus=64)),
    ),
    Case(
        "partition-qos-exempt",
        ERROR,
        "of 0 goes before",
        both(partition(qos="part"), qos(HeldQos("part", exempt=0))),
    ),
    Case("partition-qos-list", ERROR, "fs-8h", partition(allow_qos=RUNGS - {"fs-8h"})),
    Case("partition-qos-list", ERROR, "fs-8h", partition(deny_qos=frozenset({"fs-8h"}))),
    Case("partition-qos-list", WARNING, "fs-8h", partition(allow_qos=frozenset({"normal"}))),
    Case(
        "tree-empty",
        WARNING,
        "No budget tree",
        put(tree=Tree()),
    ),
    Case("account-unknown", WARNING, "ghost", put(tree=tree(vision=1, language=1, ghost=1))),
    Case(
        "account-unbudgeted",
        ADVICE,
        "guests",
        held(gina=Association("guests", "gina"), guests=Association("guests")),
    ),
    Case("account-empty", ADVICE, "language", held(dan=Association("vision", "dan", 9 * BAND, RUNGS))),
    Case(
        "access",
        ERROR,
        "vision",
        held(vision=Association("vision", "", 9 * BAND, RUNGS - {"fs-2h"}, "fs-unallocated")),
    ),
    Case("default-qos", WARNING, "vision (normal)", held(vision=Association("vision", "", 9 * BAND, RUNGS, "normal"))),
    Case("user-access", ERROR, "alice", held(alice=Association("vision", "alice", 9 * BAND, frozenset({"normal"})))),
    Case("user-priority", WARNING, "Priority 7", held(alice=Association("vision", "alice", 7, RUNGS))),
    Case("foreign-priority", WARNING, "guests", held(guests=Association("guests", "", 6 * BAND))),
    Case("user-without-uid", WARNING, "newcomer", put(users={"alice": True, "newcomer": False})),
    Case("admin-level", ERROR, "AdminLevel None", put(rights=Rights("fairshare", 2000, "head1", "None"))),
    Case("admin-level", ADVICE, "Operator", put(rights=Rights("fairshare", 2000, "head1", "Operator"))),
    Case("admin-level", ERROR, "knows no user", put(rights=Rights("fairshare", 2000, "head1", ""))),
    Case(
        "private-data",
        ERROR,
        "hides jobs",
        both(conf(PrivateData="jobs"), put(rights=Rights("fairshare", 2000, "head1", "None"))),
        frozenset({"admin-level"}),
    ),
    Case("release", WARNING, "version 27.05.0", both(conf(SLURM_VERSION="27.05.0"), dbd(SLURMDBD_VERSION="27.05.0"))),
    Case(
        "known-bug",
        ERROR,
        "stale pointers",
        both(conf(SLURM_VERSION="25.11.6"), dbd(SLURMDBD_VERSION="25.11.6")),
    ),
    Case("versions-apart", WARNING, "slurmdbd is 23.11.1", dbd(SLURMDBD_VERSION="23.11.1")),
    Case("clock-skew", ERROR, "5m ahead", put(clocks=(Clocks("slurmctld", 300.0, 0.5),))),
    Case("clock-skew", WARNING, "5s behind", put(clocks=(Clocks("Postgres", -5.0, 0.1),))),
    Case(
        "drained-without-reason",
        ADVICE,
        "n2",
        put(nodes=(HEALTHY.nodes[0], replace(HEALTHY.nodes[1], reason=""))),
    ),
    Case("no-gpus", ERROR, "down or drained", put(nodes=(HEALTHY.nodes[1], HEALTHY.nodes[2]))),
    Case("schema", ERROR, "no schema", put(database=replace(HEALTHY.database, version=None))),
    Case("schema", ERROR, "needs 0004", put(database=replace(HEALTHY.database, version="0001"))),
    Case("database-rights", ERROR, "insert on", put(database=replace(HEALTHY.database, lacks=("insert on ticks",)))),
    Case("database-superuser", WARNING, "superuser", put(database=replace(HEALTHY.database, superuser=True))),
    Case(
        "pages-login",
        WARNING,
        "not in fairshare_manager",
        put(database=replace(HEALTHY.database, pages_lack=(("web", "fairshare_manager"),))),
    ),
    Case("secret-open", WARNING, "may read /etc/secret", wanted(open_secrets=("/etc/secret",))),
    Case("no-tick", WARNING, "No tick", put(tick=TickState(None))),
    Case("tick-old", ERROR, "10m ago", put(tick=TickState(NOW - timedelta(minutes=10), failure="plan: refused"))),
    Case("tick-old", WARNING, "4m ago", put(tick=TickState(NOW - timedelta(minutes=4)))),
    Case(
        "interval-long",
        WARNING,
        "is 10m",
        wanted(interval=timedelta(minutes=10)),
    ),
    Case("push-off", ADVICE, "push is false", wanted(push=False)),
)


def found(facts: Facts, name: str) -> list[Finding]:
    return [finding for finding in examine(facts).findings if finding.name == name]


def test_a_healthy_site_gets_no_finding_and_every_check_is_made() -> None:
    examination = examine(HEALTHY)
    assert examination.findings == ()
    assert examination.left_out == ()
    assert examination.worst is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.says}")
def test_a_fault_is_found_by_its_check_and_by_no_other(case: Case) -> None:
    findings = examine(case.change(HEALTHY)).findings
    mine = [finding for finding in findings if finding.name == case.check]
    assert mine, [finding.name for finding in findings]
    assert any(case.says in finding.wrong for finding in mine), mine
    assert max(finding.severity for finding in mine) is case.severity
    assert {finding.name for finding in findings} - {case.check} <= case.also
    assert all(finding.why and finding.line.text and finding.wrong.strip() for finding in findings)


def test_every_check_has_a_fault_in_the_table() -> None:
    assert {check.name for check in CHECKS} == {case.check for case in CASES}


def test_names_are_unique_and_fit_for_scripts() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names) >= 25
    assert all(name.replace("-", "").isalnum() and name.islower() for name in names)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_a_check_looks_only_at_the_sources_it_names(check: Any) -> None:
    """Whatever it does not name is taken away: on the healthy site, and with each of its faults."""
    given = {field.name for field in fields(Facts)} - {source.value for source in Source}
    kept = given | {source.value for source in check.needs}
    for case in (None, *(case for case in CASES if case.check == check.name)):
        facts = case.change(HEALTHY) if case else HEALTHY
        hollow = object.__new__(Facts)
        for name in kept:
            object.__setattr__(hollow, name, getattr(facts, name))
        if Source.FILE.value not in kept and Source.CONFIG in check.needs:
            object.__setattr__(hollow, "lines", {})  # tells more about the configuration where it can be read
        list(check.look(hollow))


@pytest.mark.parametrize("source", Source, ids=lambda source: source.value)
def test_what_could_not_be_read_is_said_and_its_checks_are_left_out(source: Source) -> None:
    examination = examine(replace(HEALTHY, unread={source: "slurmdbd is down: start it"}))
    (finding,) = examination.findings
    assert finding.name == UNREAD
    assert "slurmdbd is down" in finding.wrong
    assert finding.severity >= WARNING
    assert set(examination.left_out) == {check.name for check in CHECKS if source in check.needs}
    assert not set(examination.left_out) & set(examination.made)


def test_the_worst_comes_first() -> None:
    facts = both(conf(KillWait="30 sec", JobRequeue="0"), put(queue=Waiting(50_000)))(HEALTHY)
    assert [finding.severity for finding in examine(facts).findings] == [ERROR, WARNING, ADVICE]


# --- odd corners ----------------------------------------------------------------------------------


def test_before_26_05_the_file_tells_what_no_normal_all_hides() -> None:
    only_qos = {"priorityflags": ("NO_NORMAL_QOS",)}
    assert found(replace(HEALTHY, lines=only_qos), "assoc-normalised")
    newer = both(conf(SLURM_VERSION="26.05.5"), dbd(SLURMDBD_VERSION="26.05.5"), put(lines=only_qos))(HEALTHY)
    assert not found(newer, "assoc-normalised"), "slurmctld says it exactly now; the file may have changed since"
    assert not found(replace(HEALTHY, lines={}), "assoc-normalised"), "what is not known is not called wrong"


def test_without_a_lane_the_weight_of_qos_may_be_0_and_killwait_30() -> None:
    facts = both(wanted(lane=None), conf(PriorityWeightQOS="0", KillWait="30 sec"))(HEALTHY)
    assert not found(facts, "weight-qos")
    assert not found(facts, "kill-wait")
    assert not found(facts, "qos-normalised")


def test_partitions_outside_the_contract_are_left_alone() -> None:
    other = Partition("cpu", frozenset({"n1"}), "part", frozenset({"normal"}), priority_tier=9, max_time=30 * 86_400)
    facts = both(
        wanted(partitions=("gpu",)), put(partitions=(*HEALTHY.partitions, other)), qos(HeldQos("part", exempt=0))
    )(HEALTHY)
    assert [finding.name for finding in examine(facts).findings] == []


def test_the_line_to_write_keeps_what_the_site_had() -> None:
    facts = conf(SchedulerParameters="default_queue_depth=50,bf_interval=60")(HEALTHY)
    (finding,) = found(facts, "bf-interval")
    assert finding.line.text == "SchedulerParameters=default_queue_depth=50,bf_interval=10"
    facts = conf(AccountingStorageEnforce="associations,safe")(HEALTHY)
    (finding,) = found(facts, "enforce")
    assert finding.line.text == "AccountingStorageEnforce=associations,safe,limits,qos"


def test_a_rung_whose_times_are_unset_where_0_is_wanted_is_as_good() -> None:
    assert not found(rung("fs-unallocated", exempt=None, grace=None)(HEALTHY), "rung-protection")


def test_operators_may_see_what_private_data_hides() -> None:
    facts = both(conf(PrivateData="jobs,usage"), put(rights=Rights("fairshare", 2000, "h", "Operator")))(HEALTHY)
    assert not found(facts, "private-data")


def test_account_names_compare_without_case() -> None:
    facts = put(tree=tree(Vision=1, LANGUAGE=1))(HEALTHY)
    assert examine(facts).findings == ()


@pytest.mark.parametrize(
    ("version", "bugs"),
    [
        ("22.05.8", {"old-priority-after-requeue", "empty-preempt-list"}),
        ("24.05.3", {"old-priority-after-requeue", "empty-preempt-list"}),
        ("24.05.4", {"old-priority-after-requeue"}),
        ("24.11.3", {"preemptor-waits"}),
        ("24.11.5", set()),
        ("25.05.3", set()),
        ("25.11.6", {"stale-pointers"}),
        ("25.11.7", set()),
        ("26.05.1", {"stale-pointers"}),
        ("26.05.2", set()),
    ],
)
def test_bugs_by_version(version: str, bugs: set[str]) -> None:
    facts = both(conf(SLURM_VERSION=version), dbd(SLURMDBD_VERSION=version))(HEALTHY)
    assert {finding.subject for finding in found(facts, "known-bug")} == bugs


def test_some_bugs_only_concern_sites_set_up_for_them() -> None:
    facts = conf(SLURM_VERSION="24.11.5", PreemptParameters="min_exempt_priority=5,youngest_first")(HEALTHY)
    assert [finding.subject for finding in found(facts, "known-bug")] == ["min-exempt-fatal"]
    facts = conf(SLURM_VERSION="24.11.5", PreemptParameters="youngest_first,min_exempt_priority=5")(HEALTHY)
    assert not found(facts, "known-bug")


def test_each_bug_ends_with_its_correction() -> None:
    for bug in BUGS:
        assert all(not bug.met_by(fix) for fix in bug.fixed)
        assert bug.met_by((bug.fixed[0][0], bug.fixed[0][1], bug.fixed[0][2] - 1)) or bug.fixed[0][2] == 0


def test_versions_are_read_as_the_tools_write_them() -> None:
    assert release_of("slurm-wlm 24.11.5") == (24, 11, 5)
    assert release_of("25.05.0-0rc1") == (25, 5, 0)


def test_another_ladder_is_compared_with_itself() -> None:
    ladder = Ladder.of((1800,), "x-")
    facts = replace(HEALTHY, wanted=replace(HEALTHY.wanted, ladder=ladder, prefix="x-"))
    assert found(facts, "rung-missing")[0].wrong == "There is no QOS x-unallocated, x-30m."
