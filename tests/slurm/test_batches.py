"""A tick's priorities in one sacctmgr, and everything else one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slurm_fairshare.core.plan import AddQos, Change, ClearUserPriority, Held, RemoveQos, SetPriority
from slurm_fairshare.errors import SlurmError, SlurmRefused, SlurmUnreadable
from slurm_fairshare.slurm.changes import MOST_COMMANDS, batches, carry_out, commands
from slurm_fairshare.slurm.run import Answer, Runner

MODIFIED = " Modified account associations...\n  C = lab        A = {0} of root\n"
SAME = " Error with request: Data has not changed since time specified\n"


class Sacctmgr:
    """sacctmgr as it answers to commands on standard input: it echoes, goes on after an error, and ends with 1 then."""

    def __init__(self, refuses: str = "", knows: Sequence[str] = ("a", "b", "c"), deaf: bool = False) -> None:
        self.processes: list[list[str]] = []
        self._refuses, self._knows, self._deaf = refuses, knows, deaf

    def __call__(self, command: Sequence[str], _timeout: float, stdin: str | None = None) -> Answer:
        alone = list(command[list(command).index("sacctmgr") + 2 :])
        lines = [" ".join(alone)] if alone else ("" if self._deaf else stdin or "").split("\n")[:-1]
        self.processes.append(lines)
        out, err = "", ""
        for line in lines:
            out += "" if alone else f"sacctmgr: {line}\n"
            name = line.partition("name=")[2].partition(" ")[0]
            if self._refuses and self._refuses in line:
                err += " Problem with request: Access/permission denied\n"
            elif name not in self._knows:
                err += "sacctmgr: error: Request didn't affect anything\n" + SAME
            else:
                out += MODIFIED.format(name)
        return Answer(1 if err else 0, out, err)


def done(tool: Sacctmgr, *changes: Change) -> list[list[str]]:
    runner = Runner(execute=tool, attempts=1)
    for batch in batches([(change, commands(change, "lab", Held())) for change in changes]):
        carry_out(runner, batch)
    return tool.processes


def labels(*names: str) -> list[Change]:
    return [SetPriority((name,), 100_000 * place) for place, name in enumerate(names, start=1)]


def test_all_priorities_of_a_tick_go_through_one_process() -> None:
    processes = done(Sacctmgr(), *labels("a", "b"), ClearUserPriority("c", "c"), *labels("c"))
    assert [len(lines) for lines in processes] == [4]
    assert processes[0][0] == "modify account where name=a cluster=lab set Priority=100000"


def test_whatever_must_keep_its_order_goes_alone() -> None:
    tool = Sacctmgr(knows=("a", "b", "q", "r"))
    assert [len(lines) for lines in done(tool, AddQos("q"), *labels("a", "b"), RemoveQos("r"))] == [1, 2, 1]


def test_one_priority_needs_no_standard_input() -> None:
    assert done(Sacctmgr(), *labels("a")) == [["modify account where name=a cluster=lab set Priority=100000"]]


def test_an_account_that_has_gone_does_not_stop_the_others() -> None:
    assert len(done(Sacctmgr(), *labels("a", "gone", "b"))) == 1
    assert len(done(Sacctmgr(knows=()), *labels("a", "b"))) == 1


def test_a_refusal_is_an_error_with_its_remedy() -> None:
    with pytest.raises(SlurmRefused, match="AdminLevel Operator"):
        done(Sacctmgr(refuses="name=b"), *labels("a", "b", "c"))


def test_where_standard_input_does_not_arrive_each_goes_alone() -> None:
    """`docker exec` without -i, for one."""
    processes = done(Sacctmgr(deaf=True), *labels("a", "b"))
    assert [len(lines) for lines in processes] == [0, 1, 1]


def test_an_answer_that_stops_half_way_is_an_error() -> None:
    def half(command: Sequence[str], timeout: float, stdin: str | None = None) -> Answer:
        return Sacctmgr()(command, timeout, (stdin or "").split("\n")[0] + "\n")

    with pytest.raises(SlurmUnreadable, match="answered 1 of them"):
        carry_out(Runner(execute=half), [c for change in labels("a", "b") for c in commands(change, "lab", Held())])


def test_words_of_another_kind_are_no_success() -> None:
    def broken(_command: Sequence[str], _timeout: float, _stdin: str | None = None) -> Answer:
        return Answer(1, "", "sacctmgr: error: Problem talking to the database: Connection refused")

    with pytest.raises(SlurmError, match="Connection refused"):
        carry_out(Runner(execute=broken), [c for change in labels("a", "b") for c in commands(change, "lab", Held())])


def test_a_great_many_are_split_so_that_none_takes_too_long() -> None:
    names = [f"t{number}" for number in range(2 * MOST_COMMANDS + 1)]
    assert [len(lines) for lines in done(Sacctmgr(knows=names), *labels(*names))] == [MOST_COMMANDS] * 2 + [1]


def test_a_qos_that_jobs_still_use_is_refused_with_what_to_do() -> None:
    def in_use(_command: Sequence[str], _timeout: float) -> Answer:
        return Answer(1, "", " Error with request: Job(s) active, cancel job(s) before remove\n")

    (command,) = commands(RemoveQos("fs-1h"), "lab", Held())
    with pytest.raises(SlurmRefused, match=r"jobs still use it.*scontrol update JobId=ID QOS=NAME"):
        carry_out(Runner(execute=in_use), [command])
