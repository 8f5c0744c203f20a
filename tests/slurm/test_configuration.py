"""What the doctor reads in Slurm: each source from what its tool prints, and what happens where one cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from slurm_fairshare.core.doctor.facts import Facts, HeldQos, Source, Wanted
from slurm_fairshare.core.tree import Share, build
from slurm_fairshare.errors import SlurmUnreachable, SlurmUnreadable
from slurm_fairshare.slurm.configuration import (
    parse_accounting,
    parse_backlog,
    parse_configuration,
    parse_file,
    parse_nodes,
    parse_partitions,
    parse_qos,
    parse_queue,
    parse_users,
    read,
    trusted_uids,
)
from slurm_fairshare.slurm.plugin import PluginSettings, packaged, render
from slurm_fairshare.slurm.run import Answer
from tests.slurm.fake import Tools, said

NOW = datetime(2026, 11, 29, 20, 11, 17, tzinfo=UTC)
CONFIG = """\
Configuration data as of 1795983077
AccountingStorageTRES   = cpu,mem,energy,node,billing,gres/gpu
ClusterName             = lab
KillWait                = 10 sec
PreemptParameters       = (null)
PriorityCalcPeriod      = 00:01:00
SchedulerParameters     = bf_interval=10,bf_continue
SlurmctldHost[0]        = slurmctld
SLURM_CONF              = /etc/slurm/slurm.conf
SLURM_VERSION           = 24.11.5

Cgroup Support Configuration:
AllowedRAMSpace         = 100.0%

Slurmctld(primary) at slurmctld is UP
"""
PARTITIONS = (
    "PartitionName=gpu AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL Default=YES QoS=N/A DefaultTime=1-00:00:00 "
    "MaxTime=7-00:00:00 Nodes=n[1-2] PriorityTier=1 PreemptMode=REQUEUE State=UP\n"
    "PartitionName=vip AllowAccounts=ALL AllowQos=normal,fs-1h QoS=part MaxTime=UNLIMITED Nodes=n2 PriorityTier=10\n"
    "PartitionName=rest DenyQos=fs-8h QoS=N/A MaxTime=02:00:00 Nodes=(null) PriorityTier=1\n"
)
NODES = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=32  Gres=gpu:h100:8(S:0-1) NodeAddr=n1 Version=24.11.5 "
    "OS=Linux 6.1 #1 SMP @0  State=MIXED+DRAIN+PLANNED Partitions=gpu CfgTRES=cpu=64,mem=125G,gres/gpu=8 "
    "AllocTRES=gres/gpu=2 Reason=bad GPU 3 [root@2026-11-29T20:10:00]\n"
    "NodeName=n2 Gres=gpu:8 State=IDLE* CfgTRES=cpu=64,mem=125G AllocTRES= \n"
)
ASSOCIATIONS = (
    "Current Association Manager state\n\nAssociation Records\n\n"
    "ClusterName=lab Account=root UserName= Partition= Priority=0 ID=1 SharesRaw/Norm/Level/Factor=1/0.00/1/0.00\n"
    "ClusterName=lab Account=root UserName=root(0) Partition= Priority=0 ID=2 SharesRaw=1\n"
    "ClusterName=lab Account=vision UserName=alice(2001) Partition= Priority=300000 ID=3 SharesRaw=1\n"
    "ClusterName=lab Account=vision UserName=newcomer(4294967294) Partition= Priority=0 ID=4 SharesRaw=1\n"
    "QOS Records\n"
    "QOS=normal(1) UsageRaw=0.0 MaxTRESPJ= MaxTRESPN= PreemptMode=OFF Priority=0\n"
)
ACCOUNTING = """\
Configuration data as of 1795983078
PrivateData            = jobs
SLURM_CONF             = /etc/slurm/slurm.conf

SlurmDBD configuration:
MaxQueryTimeRange      = 1-00:00:00
PrivateData            = none
PurgeJobAfter          = 12months
SLURMDBD_VERSION       = 24.11.5
"""
QOS = (
    "normal|00:00:00|||cluster||1.000000\n"
    "fs-1h|01:00:00|01:00:00|fs-unallocated|cluster|DenyOnLimit,OverPartQOS|1.000000\n"
    "odd|00:00:00|00:00:00||requeue,within||0.500000\n"
)
SLURM_CONF = """\
# SchedulerParameters=not,this
ClusterName=lab SlurmUser=slurm
SchedulerParameters=bf_interval=10,\\
bf_continue   # why
NodeName=n1 Gres=gpu:8 State=UNKNOWN
Include more.conf
PriorityFlags = NO_NORMAL_ASSOC
"""
PROBED = said("sbatch: error: fairshare: min_runtime=9999d is over the cap of 8h: write min_runtime=8h or less")


def scontrol(words: Sequence[str]) -> str:
    return {"config": CONFIG, "partitions": PARTITIONS, "nodes": NODES, "assoc_mgr": ASSOCIATIONS}[words[-1 if words[-1]
        in ("config", "partitions", "nodes") else -2]]  # fmt: skip


def sacctmgr(words: Sequence[str]) -> str:
    if "configuration" in words:
        return ACCOUNTING
    what = words[words.index("show") + 1]
    short = "normal|0|00:00:00|||||\n"
    return {
        "qos": QOS if "UsageFactor" in words[-1] else short,
        "cluster": "lab\nother\n",
        "user": "fairshare|Operator\n",
        "assoc": "1|root||normal|\n2|root|root|normal|\n3|vision|alice|normal|\n4|vision|newcomer|normal|\n",
    }[what]


def squeue(words: Sequence[str]) -> str:
    return "17\n18\n" if "%A" in words else "PENDING|fs-4h\nRUNNING|fs-4h\nPENDING|fs-unallocated\n"


def cat(words: Sequence[str]) -> str | Answer:
    files = {
        "/etc/slurm/slurm.conf": SLURM_CONF,
        "/etc/slurm/more.conf": "JobSubmitPlugins=throttle\nJobSubmitPlugins=lua\n",
        "/etc/slurm/job_submit.lua": packaged(),
    }
    return files.get(words[-1]) or said(f"cat: {words[-1]}: No such file or directory")


def identity(words: Sequence[str]) -> str:
    return "fairshare\n" if "-n" in words else "2000\n"


Reply = str | Answer | Callable[[Sequence[str]], str | Answer]


def site(**replies: Reply) -> Tools:
    usual: dict[str, Reply] = {
        "scontrol": scontrol,
        "sacctmgr": sacctmgr,
        "squeue": squeue,
        "sdiag": "sdiag output at ...\nDBD Agent queue size: 12\n",
        "sacct": "17\n18\n19\n19\n",
        "sbatch": PROBED,
        "cat": cat,
        "id": identity,
        "uname": "head1\n",
    }
    return Tools(**{**usual, **replies})


def looked(fake: Tools, **values: object) -> Facts:
    ticking = iter([1_795_983_077.0, 1_795_983_077.4])
    start = replace(Facts(NOW, Wanted(cluster="lab")), **values)
    return read(
        fake.runner(), start, lambda uids: render(PluginSettings(trusted_uids=tuple(sorted(uids)))), ticking.__next__
    )


def test_everything_is_read() -> None:
    facts = looked(site())
    assert facts.unread == {}
    assert facts.release == (24, 11, 5)
    assert facts.config.options("SchedulerParameters") == {"bf_interval": "10", "bf_continue": ""}
    assert [part.name for part in facts.partitions] == ["gpu", "vip", "rest"]
    assert facts.queue.pending == 2
    assert facts.queue.by_qos == {"fs-4h": 2, "fs-unallocated": 1}
    assert facts.backlog == 12
    assert facts.held.account("vision") is None
    assert {one.user for one in facts.held.associations} == {"", "root", "alice", "newcomer"}
    assert facts.users == {"root": True, "alice": True, "newcomer": False}
    assert facts.accounting.text("PrivateData") == ""
    assert facts.clusters == {"lab", "other"}
    assert (facts.rights.user, facts.rights.uid, facts.rights.host, facts.rights.level) == (
        "fairshare", 2000, "head1", "Operator",
    )  # fmt: skip
    assert facts.runaways == ("19",)
    assert "over the cap of 8h" in facts.probe
    assert facts.plugin.place == "/etc/slurm/job_submit.lua"
    assert facts.plugin.text == facts.plugin.wanted
    assert facts.plugin.trusted_uids == {0}


def test_nothing_is_changed() -> None:
    fake = site()
    looked(fake)
    verbs = {"show", "config"}
    for words in fake.commands:
        assert words[0] not in ("scontrol", "sacctmgr") or verbs & set(words), words
        assert words[0] != "sbatch" or "--test-only" in words
    assert not any("-i" in words for words in fake.commands)


def test_the_probe_can_never_become_a_job_and_speaks_for_an_account_of_the_tree() -> None:
    fake = site()
    looked(fake, tree=build({"": (Share("a", 1, "Vision@x"),)}), wanted=Wanted(cluster="lab", partitions=("gpu", "b")))
    (probe,) = [words for words in fake.commands if words[0] == "sbatch"]
    assert {"--test-only", "--licenses=slurm-fairshare-doctor", "--account=Vision@x", "--partition=gpu"} <= set(probe)


def test_slurm_conf_is_read_with_what_it_includes_in_slurms_order() -> None:
    lines = looked(site()).lines
    assert lines["schedulerparameters"] == ("bf_interval=10,bf_continue",)
    assert lines["jobsubmitplugins"] == ("throttle", "lua")
    assert lines["priorityflags"] == ("NO_NORMAL_ASSOC",)
    assert "gres" not in lines
    assert lines["slurmuser"] == ("slurm",)


def test_a_file_that_includes_itself_ends() -> None:
    def endless(words: Sequence[str]) -> str:
        return packaged() if words[-1].endswith(".lua") else "include slurm.conf\nClusterName=lab\n"

    assert len(looked(site(cat=endless)).lines["clustername"]) == 6


def test_the_clock_is_compared_with_the_middle_of_the_question() -> None:
    (clock,) = looked(site()).clocks
    assert clock.name == "slurmctld"
    assert clock.ahead == pytest.approx(0.3)
    assert clock.doubt == pytest.approx(0.7)


def test_a_dead_slurmctld_is_asked_once_and_slurmdbd_is_read_all_the_same() -> None:
    fake = site(scontrol=said("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)"))
    facts = looked(fake)
    assert set(facts.unread) == {
        Source.CONFIG, Source.PARTITIONS, Source.NODES, Source.QUEUE, Source.BACKLOG, Source.HELD, Source.USERS,
        Source.PROBE, Source.RUNAWAYS, Source.FILE, Source.PLUGIN,
    }  # fmt: skip
    assert "Unable to contact" in facts.unread[Source.CONFIG]
    assert [words[0] for words in fake.commands].count("scontrol") == 1
    assert facts.qos["fs-1h"].exempt == 3600


@pytest.mark.parametrize(
    "answer",
    [said("sacctmgr: error: Sending PersistInit msg: Connection refused"), Answer(0, CONFIG, "DBD_GET_CONFIG failure")],
    ids=["says so", "shows its own half and ends well"],
)
def test_a_dead_slurmdbd_is_asked_once_and_slurmctld_is_read_all_the_same(answer: Answer) -> None:
    fake = site(sacctmgr=answer)
    facts = looked(fake)
    assert set(facts.unread) == {
        Source.ACCOUNTING, Source.QOS, Source.CLUSTERS, Source.RIGHTS, Source.HELD, Source.RUNAWAYS,
    }  # fmt: skip
    assert [words[0] for words in fake.commands].count("sacctmgr") == 1
    assert facts.partitions


def test_where_the_files_cannot_be_read_only_they_are_missing() -> None:
    facts = looked(site(cat=said("cat: /etc/slurm/slurm.conf: Permission denied")))
    assert set(facts.unread) == {Source.FILE, Source.PLUGIN}


def test_without_sbatch_the_probe_is_missing_and_no_plugin_is_called_silent() -> None:
    facts = looked(site(sbatch=said("env: 'sbatch': No such file or directory", 127)))
    assert set(facts.unread) == {Source.PROBE}


def test_an_answer_that_is_not_understood_is_not_taken_for_nothing() -> None:
    facts = looked(site(sdiag="something else", squeue=said("squeue: error: Invalid user"), id="who?\n"))
    assert {Source.BACKLOG, Source.QUEUE, Source.RIGHTS, Source.RUNAWAYS} == set(facts.unread)


def test_a_user_slurmdbd_does_not_know_has_no_level() -> None:
    def without_user(words: Sequence[str]) -> str:
        return "\n" if "user" in words else sacctmgr(words)

    assert looked(site(sacctmgr=without_user)).rights.level == ""


# --- each tool ------------------------------------------------------------------------------------


def test_configuration_keeps_values_with_an_equals_sign() -> None:
    config = parse_configuration(CONFIG)
    assert config.number("killwait") == 10
    assert config.seconds("PriorityCalcPeriod") == 60
    assert config.text("PreemptParameters") == ""
    assert config.text("NotThere") == ""


@pytest.mark.parametrize("text", ["", "error: nothing", "Slurmctld(primary) at head is UP"])
def test_a_configuration_without_a_line_is_none(text: str) -> None:
    with pytest.raises(SlurmUnreadable):
        parse_configuration(text)


def test_slurmdbd_is_heard_only_in_its_own_section() -> None:
    assert parse_accounting(ACCOUNTING).text("PurgeJobAfter") == "12months"
    with pytest.raises(SlurmUnreachable):
        parse_accounting(ACCOUNTING.partition("SlurmDBD")[0])


def test_partitions() -> None:
    gpu, vip, rest = parse_partitions(PARTITIONS)
    assert (gpu.nodes, gpu.qos, gpu.allow_qos, gpu.max_time) == ({"n1", "n2"}, "", None, 7 * 86_400)
    assert (vip.qos, vip.allow_qos, vip.priority_tier, vip.max_time) == ("part", {"normal", "fs-1h"}, 10, None)
    assert (rest.deny_qos, rest.nodes, rest.max_time) == ({"fs-8h"}, frozenset(), 7200)


def test_nodes_whose_gpus_go_uncounted_are_read_too() -> None:
    n1, n2 = parse_nodes(NODES)
    assert (n1.states, n1.gres, n1.reason) == ({"MIXED", "DRAIN", "PLANNED"}, "gpu:h100:8(S:0-1)", "bad GPU 3")
    assert (n2.states, n2.tres, n2.reason) == ({"IDLE"}, {"cpu": "64", "mem": "125G"}, "")


def test_qos_tell_0_from_unset() -> None:
    found = parse_qos(QOS)
    assert found["normal"] == HeldQos("normal", None, 0, modes=frozenset({"cluster"}))
    assert found["fs-1h"].flags == {"denyonlimit", "overpartqos"}
    assert (found["odd"].exempt, found["odd"].modes, found["odd"].usage_factor) == (0, {"requeue", "within"}, 0.5)
    with pytest.raises(SlurmUnreadable):
        parse_qos("normal|00:00:00\n")


def test_queue_backlog_users() -> None:
    assert parse_queue("").pending == 0
    assert parse_backlog("DBD Agent queue size: 0\n") == 0
    assert parse_users(ASSOCIATIONS)["newcomer"] is False


def test_quotes_and_comments_in_a_file() -> None:
    text = 'MailProg="/bin/mail -s x" # MailProg=no\nPartitionName=gpu Nodes=n1\nMaxJobCount=5 KillWait=7\n'
    assert list(parse_file(text)) == [("mailprog", "/bin/mail -s x"), ("maxjobcount", "5"), ("killwait", "7")]


def test_trusted_uids_of_a_rendered_plugin() -> None:
    assert trusted_uids(render(PluginSettings(trusted_uids=(0, 64030)))) == {0, 64030}
    assert trusted_uids("nothing") == frozenset()
