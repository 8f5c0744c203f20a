"""What Slurm holds is read with one call while nothing changes; changes are words sacctmgr cannot misread."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.plan import (
    AddQos,
    Allow,
    Association,
    Change,
    ClearUserPriority,
    Disallow,
    Held,
    Qos,
    RemoveQos,
    SetPriority,
    SetQos,
)
from slurm_fairshare.errors import SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm.changes import commands, safe
from slurm_fairshare.slurm.run import Answer
from slurm_fairshare.slurm.settings import ProcessMemo, SettingsReader, parse_assoc_mgr
from tests.slurm.fake import NOW, Tools

TAIL = "SharesRaw/Norm/Level/Factor=1/1.00/1/0.00 Comment=ClusterName=x Account=fake Priority=9 "


def assoc(number: int, account: str, user: str = "", priority: int = 0) -> str:
    name = f"{user}({2000 + number})" if user else ""
    return f"ClusterName=lab Account={account} UserName={name} Partition= Priority={priority} ID={number} {TAIL}"


def qos(name: str, number: int, priority: int = 0, per_job: str = "") -> str:
    return (
        f"QOS={name}({number}) UsageRaw=15.998607 GrpJobs=N(1) MaxTRESPJ={per_job} MaxTRESPN= MinTRESPJ= "
        f"PreemptMode=OFF Priority={priority} Account Limits= bio={{MaxJobsPA=N(1) Priority=5}} User Limits=No Users"
    )


ASSOC_MGR = "\n".join(
    [
        "Current Association Manager state",
        "Association Records",
        assoc(1, "root"),
        assoc(2, "root", "root"),
        assoc(6, "bio", priority=300_000),
        assoc(7, "bio", "alice", 300_000),
        assoc(8, "bio", "bob", 7),
        "QOS Records",
        qos("normal", 1),
        qos("fs-15m", 4, 2_000_000_000, "gres/gpu=8"),
        "",
    ]
)
QOS = (
    "normal|0|00:00:00||||||\n".replace("||||||", "|||||")
    + "fs-15m|2000000000|00:15:00|00:15:00|fs-unallocated|DenyOnLimit,NoDecay|gres/gpu=8|gres/gpu=40\n"
)
ACCESS = "1|root||normal|\n2|root|root|normal|\n6|bio||fs-15m,normal|fs-15m\n7|bio|alice|fs-15m,normal|fs-15m\n"


class Site:
    """A reader over tools that answer as above."""

    def __init__(self, **replies: str) -> None:
        self.texts = {"assoc_mgr": ASSOC_MGR, "qos": QOS, "assoc": ACCESS, **replies}
        self.tools = Tools(scontrol=lambda _: self.texts["assoc_mgr"], sacctmgr=self._sacctmgr)
        self.runner = self.tools.runner()
        self.memo = ProcessMemo()

    def _sacctmgr(self, words: list[str]) -> Answer | str:
        return self.texts["qos" if "qos" in words else "assoc"]

    def held(self, now: datetime = NOW, refresh: bool = False) -> Held:
        return SettingsReader(self.runner, "lab", self.memo).held(now, refresh)

    @property
    def asked_slurmdbd(self) -> int:
        return self.runner.calls["sacctmgr"]


def test_what_slurm_holds_comes_together_from_both() -> None:
    held = Site().held()
    assert held.account("BIO") == Association("bio", "", 300_000, frozenset({"fs-15m", "normal"}), "fs-15m")
    assert held.qos["fs-15m"] == Qos(
        "fs-15m",
        2_000_000_000,
        900,
        900,
        frozenset({"fs-unallocated"}),
        frozenset({"DenyOnLimit", "NoDecay"}),
        "gres/gpu=8",
        "gres/gpu=40",
    )
    assert [(a.user, a.priority) for a in held.associations if a.account == "bio"] == [
        ("", 300_000),
        ("alice", 300_000),
        ("bob", 7),
    ]


@pytest.mark.parametrize("unset", [0, 4_294_967_295, 4_294_967_294])
def test_no_priority_is_none(unset: int) -> None:
    text = ASSOC_MGR.replace("Priority=300000 ID=6", f"Priority={unset} ID=6")
    assert Site(assoc_mgr=text).held().associations[2].priority is None


def test_a_second_look_asks_slurmctld_only() -> None:
    site = Site()
    assert site.held() == site.held(NOW + timedelta(minutes=59))
    assert (site.runner.calls["scontrol"], site.asked_slurmdbd) == (2, 2)


def test_priorities_that_move_are_seen_without_asking_slurmdbd() -> None:
    site = Site()
    site.held()
    site.texts["assoc_mgr"] = ASSOC_MGR.replace("Priority=300000", "Priority=500000")
    assert site.held().account("bio").priority == 500_000  # type: ignore[union-attr]
    assert site.asked_slurmdbd == 2


NOTICED = {
    "a new account": ASSOC_MGR.replace("QOS Records", assoc(9, "chem") + "\nQOS Records"),
    "a new QOS": ASSOC_MGR + qos("fs-1h", 5) + "\n",
    "a QOS made anew under its old name": ASSOC_MGR.replace("fs-15m(4)", "fs-15m(9)"),
    "another priority of a QOS": ASSOC_MGR.replace("Priority=2000000000", "Priority=1"),
    "another limit of a QOS": ASSOC_MGR.replace("MaxTRESPJ=gres/gpu=8", "MaxTRESPJ=gres/gpu=9"),
}


@pytest.mark.parametrize("text", NOTICED.values(), ids=NOTICED.keys())
def test_what_slurmctld_shows_differently_makes_slurmdbd_be_asked_again(text: str) -> None:
    site = Site()
    site.held()
    site.texts["assoc_mgr"] = text
    site.held()
    assert site.asked_slurmdbd == 4


@pytest.mark.parametrize("later", [timedelta(hours=1), timedelta(seconds=-1)])
def test_what_is_old_or_of_the_future_is_asked_for_again(later: timedelta) -> None:
    site = Site()
    site.held()
    site.held(NOW + later)
    assert site.asked_slurmdbd == 4


def test_a_refresh_asks_again() -> None:
    site = Site()
    site.held()
    site.held(refresh=True)
    assert site.asked_slurmdbd == 4


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"fingerprint": 1}', "null"])
def test_a_memory_that_another_version_wrote_is_forgotten(text: str) -> None:
    site = Site()
    site.memo.put(text)
    assert site.held().qos
    assert site.asked_slurmdbd == 2


UNREADABLE = {
    "nothing cached yet": "Current Association Manager state\nNo associations currently cached in Slurm.\n",
    "another format": ASSOC_MGR.replace(" Priority=300000 ID=6", ""),
    "another QOS format": ASSOC_MGR.replace("PreemptMode=OFF ", ""),
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_slurmctld_that_holds_nothing_is_an_error_and_no_empty_site(text: str) -> None:
    with pytest.raises(SlurmUnreadable):
        parse_assoc_mgr(text)


@pytest.mark.parametrize("texts", [{"qos": "normal|0|x|||||\n"}, {"qos": "normal|0\n"}, {"assoc": "1|a\nb||c|\n"}])
def test_a_broken_table_is_an_error(texts: dict[str, str]) -> None:
    with pytest.raises(SlurmUnreadable, match="not understood"):
        Site(**texts).held()


# --- changes


def words(change: Change, held: Held | None = None) -> list[str]:
    return [" ".join(command.words) for command in commands(change, "lab", held or Held())]


RUNG = Qos("fs-1h", 0, 3600, 3600, frozenset({"fs-unallocated"}))
LANE = Qos("fs-15m", 2_000_000_000, 900, 900, frozenset(), frozenset(), "gres/gpu=8", "gres/gpu=40")

CASES: dict[str, tuple[Change, list[str]]] = {
    "a new QOS": (AddQos("fs-1h"), ["add qos fs-1h"]),
    "a new QOS gets both times, also when they are nothing": (
        SetQos(Qos("fs-unallocated"), None),
        ["modify qos where name=fs-unallocated set Priority=0 GraceTime=0 PreemptExemptTime=00:00:00"],
    ),
    "a rung": (
        SetQos(RUNG, None),
        [
            "modify qos where name=fs-1h set Priority=0 GraceTime=3600 PreemptExemptTime=01:00:00 "
            "Preempt+=fs-unallocated"
        ],
    ),
    "only what differs": (
        SetQos(RUNG, Qos("fs-1h", 0, 3600, 0, frozenset({"fs-unallocated"}))),
        ["modify qos where name=fs-1h set PreemptExemptTime=01:00:00"],
    ),
    "a QOS that preempts another one now": (
        SetQos(RUNG, Qos("fs-1h", 0, 3600, 3600, frozenset({"normal"}))),
        ["modify qos where name=fs-1h set Preempt+=fs-unallocated Preempt-=normal"],
    ),
    "the debug lane's limits": (
        SetQos(LANE, Qos("fs-15m", 0, 900, 900)),
        ["modify qos where name=fs-15m set Priority=2000000000 MaxTRESPerJob=gres/gpu=8 MaxTRESPerAccount=gres/gpu=40"],
    ),
    "limits taken away": (
        SetQos(Qos("q"), Qos("q", max_tres_per_job="cpu=4,gres/gpu=8", flags=frozenset({"DenyOnLimit"}))),
        ["modify qos where name=q set Flags=-1 MaxTRESPerJob=cpu=-1,gres/gpu=-1"],
    ),
    "nothing to do": (SetQos(RUNG, RUNG), []),
    "access for several accounts at once": (
        Allow(("bio", "Test@Chem.x_1"), ("fs-unallocated", "fs-1h"), "fs-unallocated"),
        [
            "modify account where name=bio,Test@Chem.x_1 cluster=lab set qos+=fs-unallocated,fs-1h "
            "DefaultQOS=fs-unallocated"
        ],
    ),
    "one label for several accounts": (
        SetPriority(("bio", "chem"), 300_000),
        ["modify account where name=bio,chem cluster=lab set Priority=300000"],
    ),
    "a user's own priority": (
        ClearUserPriority("bio", "bob"),
        ["modify user where name=bob account=bio cluster=lab set Priority=-1"],
    ),
    "a QOS removed": (RemoveQos("fs-1h"), ["remove qos where name=fs-1h"]),
}


@pytest.mark.parametrize(("change", "expected"), CASES.values(), ids=CASES.keys())
def test_a_change_in_words_for_sacctmgr(change: Change, expected: list[str]) -> None:
    assert words(change) == expected


def test_a_default_qos_that_is_none_of_ours_stays() -> None:
    held = Held(
        associations=(
            Association("bio", default_qos="fs-unallocated"),
            Association("chem", default_qos="long"),
        )
    )
    assert words(Disallow(("bio", "chem"), ("fs-1h", "fs-unallocated")), held) == [
        "modify account where name=bio cluster=lab set DefaultQOS=-1 qos-=fs-1h,fs-unallocated Priority=-1",
        "modify account where name=chem cluster=lab set qos-=fs-1h,fs-unallocated Priority=-1",
    ]


@pytest.mark.parametrize("name", ["bio", "test@biology", "a.b-c_d+e", "Proj/2026", "A", "nlp:chat", "50%"])
def test_names_slurmdbd_accepts_are_accepted(name: str) -> None:
    assert safe(name) == name


UNSAFE = [
    ("a b", "' '"),
    ("a,b", "','"),
    ("a'b", '"\'"'),
    ('a"b', "'\"'"),
    ("a[1-2]", "'['"),
    ("a=b", "'='"),
    ("+a", "'+'"),
    ("-1", "'-'"),
    ("a\nb", "'\\n'"),
    ("a|b", "'|'"),
    ("a;b", "';'"),
]


@pytest.mark.parametrize(("name", "sign"), UNSAFE)
def test_a_name_that_would_mean_something_else_is_refused_and_the_character_named(name: str, sign: str) -> None:
    with pytest.raises(SlurmRefused, match=f"because of {re.escape(sign)}"):
        commands(SetPriority(("bio", name), 1), "lab", Held())


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(SlurmRefused, match="empty"):
        safe("")


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3))
def test_no_name_adds_a_word_or_another_name(names: Sequence[str]) -> None:
    try:
        (command,) = commands(SetPriority(tuple(names), 5), "lab", Held())
    except SlurmRefused:
        return
    assert len(command.words) == 7
    assert command.words[3] == f"name={','.join(names)}"
    assert command.words[3].count(",") == len(names) - 1


@pytest.mark.parametrize("usage", ["0.000000", "15.998607", "98765432109876.5"])
def test_slurms_own_decayed_usage_is_never_read(usage: str) -> None:
    """Whatever PriorityDecayHalfLife makes of UsageRaw, what we hold to be in Slurm is the same."""
    assert parse_assoc_mgr(ASSOC_MGR.replace("15.998607", usage)) == parse_assoc_mgr(ASSOC_MGR)
