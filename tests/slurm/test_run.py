"""The tools are run as lists of words, and what they say becomes an error with a remedy."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pytest
import stamina

from slurm_fairshare.errors import DateRangeRefused, SlurmError, SlurmRefused, SlurmUnreachable
from slurm_fairshare.slurm.run import Answer, Runner
from tests.slurm.fake import Tools, said


@pytest.fixture(autouse=True)
def _no_waiting() -> object:
    with stamina.set_testing(True, attempts=3, cap=True):
        yield


def test_a_tool_gets_its_words_one_by_one_behind_the_prefix_and_the_settings() -> None:
    seen: list[Sequence[str]] = []

    def execute(command: Sequence[str], _timeout: float) -> Answer:
        seen.append(command)
        return Answer(0, "x", "")

    runner = Runner(("docker", "exec", "-i", "ctl"), slurm_conf="/etc/a b.conf", execute=execute)
    runner.read("squeue", "-O", "Name:; rm -rf /")
    assert list(seen[0][:5]) == ["docker", "exec", "-i", "ctl", "env"]
    assert {"TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_CONF=/etc/a b.conf"} <= set(seen[0])
    assert list(seen[0][-3:]) == ["squeue", "-O", "Name:; rm -rf /"]


def test_ssh_gets_one_quoted_line_since_it_hands_it_to_a_shell() -> None:
    seen: list[Sequence[str]] = []

    def execute(command: Sequence[str], _timeout: float) -> Answer:
        seen.append(command)
        return Answer(0, "x", "")

    Runner(("/usr/bin/ssh", "head1"), execute=execute).read("sacct", "-o", "a b;c")
    assert list(seen[0][:2]) == ["/usr/bin/ssh", "head1"]
    assert len(seen[0]) == 3
    assert seen[0][2].endswith("sacct -o 'a b;c'")


def test_calls_are_counted_by_tool() -> None:
    runner = Tools(squeue="x", scontrol="x").runner()
    runner.read("squeue")
    runner.read("squeue")
    runner.write("scontrol", "requeue", "1")
    assert runner.calls == {"squeue": 2, "scontrol": 1}


UNREACHABLE = {
    "slurmctld is down": "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "slurmdbd is down": "sacct: error: Problem talking to the database: Connection refused",
    "slurmdbd cannot be found": (
        "sacctmgr: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:dbd:6819"
    ),
    "slurmctld is busy": "slurm_load_jobs error: Socket timed out on send/recv operation",
    "munge is down": "sacct: error: If munged is up, restart with --num-threads=10",
    "a lock in the database": " Database is busy or waiting for lock from other user.",
    "the rate limit": "slurm_load_jobs error: Rate limit exceeded, please retry momentarily",
    "the container is gone": "Error response from daemon: No such container: slurmctld",
}


@pytest.mark.parametrize("words", UNREACHABLE.values(), ids=UNREACHABLE.keys())
def test_no_answer_is_asked_for_again_and_then_an_error_that_says_what_to_start(words: str) -> None:
    tools = Tools(squeue=said(words))
    with pytest.raises(SlurmUnreachable, match="start the daemon"):
        tools.runner(attempts=3).read("squeue")
    assert len(tools.commands) == 3


def test_an_answer_at_the_second_try_is_an_answer() -> None:
    tools = Tools(squeue=[said(UNREACHABLE["slurmctld is down"]), "fine"])
    assert tools.runner(attempts=3).read("squeue").stdout == "fine"


def test_a_change_is_never_tried_twice() -> None:
    tools = Tools(sacctmgr=said(UNREACHABLE["slurmdbd is down"]))
    with pytest.raises(SlurmUnreachable):
        tools.runner(attempts=3).write("sacctmgr", "-i", "add", "qos", "a")
    assert len(tools.commands) == 1


@pytest.mark.parametrize(
    "words",
    [
        " Error with request: Access/permission denied",
        "sacctmgr: error: Your user doesn't have privilege to perform this action",
        "Access/permission denied for job 7",
        "Invalid user id for job 7",
    ],
)
def test_a_refusal_for_lack_of_rights_names_the_admin_level_it_takes(words: str) -> None:
    with pytest.raises(SlurmRefused, match="AdminLevel Administrator"):
        Tools(sacctmgr=said(words)).runner().write("sacctmgr", "-i", "add", level="Administrator")


def test_any_other_refusal_keeps_slurms_words() -> None:
    with pytest.raises(SlurmRefused, match="QOS Preemption loop detected"):
        Tools(sacctmgr=said("sacctmgr: error: QOS Preemption loop detected")).runner().write("sacctmgr", "x")


@pytest.mark.parametrize("words", ["Too wide of a date range in query", "Query result exceeds size limit"])
def test_too_long_a_stretch_is_an_error_of_its_own(words: str) -> None:
    with pytest.raises(DateRangeRefused):
        Tools(sacct=said(f"sacct: error: slurmdbd: {words}")).runner(attempts=3).read("sacct")


def test_a_failure_reported_with_exit_code_0_is_no_empty_answer() -> None:
    with pytest.raises(SlurmError, match="Connection refused"):
        Tools(sacct=Answer(0, "", "sacct: error: Connection refused")).runner().read("sacct")


def test_an_empty_queue_is_an_answer() -> None:
    assert Tools(squeue="").runner().read("squeue").stdout == ""


def test_a_tool_that_asks_whether_one_is_sure_finds_nobody_at_the_keyboard() -> None:
    """sacctmgr waits for an answer where it is not told -i; under a service nobody gives it one."""
    assert Runner(timeout=20).ask("cat").stdout == ""
    asked = Runner(timeout=20).ask("sh", "-c", "read -r answer || echo nobody")
    assert asked.stdout == "nobody\n"


def test_a_tool_that_hangs_is_ended_and_what_it_said_is_shown() -> None:
    script = "import sys,time; print('Database is busy', flush=True); time.sleep(60)"
    runner = Runner((sys.executable, "-c", script), timeout=0.5)
    with pytest.raises(SlurmUnreachable, match=r"did not finish within 0\.5 s.*Database is busy"):
        runner.read("sacctmgr")
    assert runner.calls["sacctmgr"] == 1


def test_a_tool_that_is_not_there_says_where_to_install_it() -> None:
    runner = Runner(timeout=5)
    with pytest.raises(SlurmUnreachable, match="client tools"):
        runner.read("no-such-tool-of-slurm")
    with pytest.raises(SlurmUnreachable, match="cannot be run"):
        Runner(("/no/such/prefix",)).read("squeue")
    assert runner.calls["no-such-tool-of-slurm"] == 1


def test_nothing_can_be_typed_into_a_tool_and_the_users_own_formats_do_not_reach_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    monkeypatch.setenv("SLURM_CLUSTERS", "elsewhere")
    monkeypatch.setenv("SLURM_JWT", "token")
    script = "import os,sys; print(sorted(k for k in os.environ if k[:2] in ('SQ','SL')), repr(sys.stdin.read()))"
    runner = Runner((sys.executable, "-c", script))
    assert runner.read("squeue").stdout.strip() == "['SLURM_JWT'] ''"


def test_bytes_that_are_no_text_do_not_stop_a_read() -> None:
    script = "import sys; sys.stdout.buffer.write(b'a\\xffb')"
    assert Runner((sys.executable, "-c", script)).read("squeue").stdout == "a\\xffb"


def test_a_tool_that_has_tried_for_long_itself_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slurm_fairshare.slurm.run.PATIENCE", 0.0)
    tools = Tools(sacct=said(UNREACHABLE["slurmdbd is down"]))
    with pytest.raises(SlurmUnreachable):
        tools.runner(attempts=3).read("sacct")
    assert len(tools.commands) == 1
