"""One table of comments and what becomes of them, for the Python reader and for job_submit.lua alike.

Each case: what the user writes, the job's time limit, and either the accepted contract or words the message must
hold. Default contract: unallocated, not resumable, normal priority; ladder and cap as delivered.
"""

from __future__ import annotations

from dataclasses import dataclass

from slurm_fairshare.core.contract import Contract, Priority

HOUR = 3600
LOW, HIGH = Priority.LOW, Priority.HIGH


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    comment: str
    accepted: Contract | None = None
    refused: tuple[str, ...] = ()
    time_limit: int | None = None


def accepted(name: str, comment: str, contract: Contract, time_limit: int | None = None) -> Case:
    return Case(name, comment, contract, (), time_limit)


def refused(name: str, comment: str, *words: str, time_limit: int | None = None) -> Case:
    return Case(name, comment, None, words, time_limit)


def _minimum(text: str, seconds: int) -> Case:
    return accepted(f"min_runtime={text}", f"min_runtime={text}", Contract(seconds))


def _unreadable(text: str) -> Case:
    return refused(f"min_runtime={text} unreadable", f"min_runtime={text}", text[:30], "write min_runtime=4h")


DURATIONS = (
    _minimum("0", 0),
    _minimum("0s", 0),
    _minimum("00:00", 0),
    _minimum("30m", 1800),
    _minimum("1h", 3600),
    _minimum("90", 5400),
    _minimum("90s", 90),
    _minimum("15m", 900),
    _minimum("4h", 14_400),
    _minimum("4H", 14_400),
    _minimum("1h30m", 5400),
    _minimum("1h30s", 3630),
    _minimum("00:30:00", 1800),
    _minimum("1:30", 90),
    _minimum("4:00:00", 14_400),
    _minimum("0-4", 14_400),
    _minimum("0-1:30", 5400),
    _minimum("0-1:30:05", 5405),
    _minimum("90:00", 5400),
    _minimum("000000480", 28_800),
    _minimum("8h", 28_800),
)

OVER_CAP = tuple(
    refused(f"min_runtime={text} over the cap", f"min_runtime={text}", spelt, "cap of 8h", "min_runtime=8h")
    for text, spelt in (
        ("9h", "9h"),
        ("8h1s", "8h1s"),
        ("1d", "1d"),
        ("1-12", "1d12h"),
        ("1-00:00:00", "1d"),
        ("999999999", "694444d"),
    )
)

UNREADABLE = tuple(
    _unreadable(text)
    for text in (
        "-5", "-1", "+4h", "1h2", "1.5h", "4hours", "30min", "1m1h", "1h1h", "h", "-", ":", "::", "1:", ":30",
        "1-", "-1-0", "1-2-3", "1:2:3:4", "1d-4", "four", "INFINITE", "UNLIMITED", "1e3", "0x10", "9999999999",
    )
)  # fmt: skip

WORDS = (
    accepted("no comment", "", Contract()),
    accepted("prose", "priority run for the notice board", Contract()),
    accepted("other pairs", "wandb=abc exp=7 max_runtime=4h reusable=yes runtime=3h", Contract()),
    accepted("blanks", "min_runtime=1h resumable=yes", Contract(3600, True)),
    accepted("commas", "min_runtime=1h,resumable=yes,priority=low", Contract(3600, True, LOW)),
    accepted("semicolons", "a;min_runtime=1h;priority=high;b", Contract(3600, False, HIGH)),
    accepted("tabs and lines", "min_runtime=1h\tresumable=yes\npriority=high", Contract(3600, True, HIGH)),
    accepted("quotes and brackets", "[\"min_runtime=1h\"] ('resumable=yes')", Contract(3600, True)),
    accepted("in the middle of text", "see ticket, min_runtime=1h please; thanks", Contract(3600)),
    accepted("upper case", "MIN_RUNTIME=1H Resumable=YES PRIORITY=High", Contract(3600, True, HIGH)),
    accepted("notice", "min_runtime=1h notice=USR1", Contract(3600, notice="USR1")),
    accepted("notice with SIG", "notice=SIGterm", Contract(notice="TERM")),
    accepted("notice to the steps", "min_runtime=1h notice=Steps:SIGusr2", Contract(3600, notice="steps:USR2")),
    accepted("no notice", "notice=none", Contract()),
    accepted("true and false", "resumable=true", Contract(0, True)),
    accepted("not resumable", "resumable=False", Contract()),
    accepted("doubled alike", "min_runtime=1h min_runtime=60 min_runtime=1h", Contract(3600)),
    accepted("other alphabets", "лаборатория 实验 min_runtime=1h", Contract(3600)),
    refused("doubled", "min_runtime=1h min_runtime=2h", "given twice", "1h", "2h"),
    refused("doubled answer", "resumable=yes, resumable=no", "given twice", "yes", "no"),
    refused("doubled notice", "notice=none notice=USR1", "given twice", "none", "USR1"),
    refused("no value", "min_runtime=", "cannot be read", "write min_runtime=4h"),
    refused("no underscore", "minruntime=4h", "write min_runtime=4h"),
    refused("no underscore, own value", "minruntime=2h", "write min_runtime=2h"),
    refused("dash", "min-runtime=90m", "write min_runtime=1h30m"),
    refused("as an option", "--min-runtime=1h", "write min_runtime=1h"),
    refused("two underscores", "min_run_time=1h", "write min_runtime=1h"),
    refused("in full", "minimum_runtime=1h", "write min_runtime=1h"),
    refused("letter missing", "min_runtme=1h", "write min_runtime=1h"),
    refused("letters swapped", "min_rutnime=1h", "write min_runtime=1h"),
    refused("unit in the key", "min_runtime_minutes=30", "write min_runtime=30m"),
    refused("misspelt with a bad value", "minruntime=soon", "write min_runtime=4h"),
    refused("resumeable", "resumeable=yes", "write resumable=yes"),
    refused("prio", "prio=high", "write priority=high"),
    refused("blank before equals", "priority = high", "no blank", "write priority=high"),
    refused("blanks around equals", "min_runtime = 4h", "write min_runtime=4h"),
    refused("blank after equals", "min_runtime= 4h", "cannot be read"),
    refused("colon", "min_runtime:4h", "write min_runtime=4h"),
    refused("glued to another pair", "exp=7|min_runtime=4h", "exp"),
    refused("inside a value", "note=min_runtime=4h", "glued", "put a blank before it"),
    refused("value of another kind", "resumable=maybe", "maybe", "write resumable=yes"),
    refused("unknown priority", "priority=urgent", "urgent", "priority=low, priority=normal or priority=high"),
    refused("no notice to the steps", "notice=steps:none", "steps:none", "write notice=USR1"),
    refused("notice to others", "notice=tasks:USR1", "tasks:USR1", "write notice=USR1"),
    refused("deadly notice", "notice=KILL", "KILL", "write notice=USR1"),
    refused("empty priority", "priority=", "write priority=low"),
    refused("own words are cut", "min_runtime=" + "9" * 80, "..."),
    refused("own words are printable", "min_runtime=4ч", "?"),
)

LIMITS = (
    accepted("below the limit", "min_runtime=1h", Contract(3600), 2 * HOUR),
    accepted("at the limit", "min_runtime=1h", Contract(3600), HOUR),
    accepted("unallocated in a short job", "", Contract(), 60),
    refused(
        "over the limit",
        "min_runtime=4h",
        "longer than the job's time limit of 1h",
        "--time=4:00:00",
        "min_runtime=1h or less",
        time_limit=HOUR,
    ),
    refused("odd seconds", "min_runtime=61s", "--time=0:02:00", "min_runtime=1m or less", time_limit=60),
    refused("over both", "min_runtime=9h", "cap of 8h", time_limit=HOUR),
)

CASES = (*DURATIONS, *OVER_CAP, *UNREADABLE, *WORDS, *LIMITS)
