"""The daemon itself: who leads, who is fenced, when it is tried again, what systemd is told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from slurm_fairshare.core.decisions import Outcome
from slurm_fairshare.daemon.backoff import Backoff
from slurm_fairshare.daemon.loop import ClockWatch, Daemon, schedule, start_anew
from slurm_fairshare.daemon.sdnotify import notify, watchdog
from slurm_fairshare.errors import ClockSkew, SlurmUnreachable, StoreUnreachable
from tests.daemon.world import T0, World, terms, world


class Host:
    """One daemon on its host, with a clock of its own and a monotonic one that a test turns."""

    def __init__(self, it: World) -> None:
        self.it = it
        self.seconds = 1000.0
        self.off = timedelta(0)
        self.daemon = Daemon(it.slurm, it.store, it.config, self.clock, lambda: self.seconds)

    def clock(self) -> datetime:
        return self.it.slurm.now + self.off

    def step(self, seconds: float) -> None:
        """Time goes by, then the daemon takes both its turns."""
        self.seconds += seconds
        self.it.slurm.advance(seconds)
        self.daemon.tick()
        self.daemon.rebalance()


@pytest.fixture
def it() -> World:
    return world()


def last(it: World) -> datetime | None:
    found = it.store.last_tick()
    return found.at if found is not None else None


def contested(it: World) -> int:
    """Robotics holds both nodes, one past its minimum of a minute; vision waits. The run that is to yield."""
    victim = it.run("robotics", 8, terms(60))
    it.run("robotics", 8, terms(8 * 3600))
    it.wait("vision", 8, terms(60))
    return victim


# --- who leads ------------------------------------------------------------------------------------


def test_one_of_two_daemons_leads_and_the_other_takes_over_at_its_next_turn(it: World) -> None:
    first, second = Host(it), Host(it)
    first.step(60)
    second.step(0)
    assert (first.daemon.leading, second.daemon.leading) == (True, False)
    first.daemon.close()
    second.step(60)
    assert second.daemon.leading
    assert last(it) == it.now


def test_the_leader_says_who_it_is_and_since_when(it: World) -> None:
    host = Host(it)
    host.step(60)
    found = it.store.recall("leader")
    assert found is not None
    assert found[1].keys() == {"host", "pid", "since"}
    assert found[1]["host"] == socket.gethostname()


def test_a_leader_that_lost_its_session_stands_by_and_leads_again_when_it_is_free(it: World) -> None:
    host = Host(it)
    host.step(60)
    it.store.depose()
    host.daemon.beat()
    assert not host.daemon.leading
    host.step(60)
    assert host.daemon.leading
    assert last(it) == it.now


def test_a_fenced_leader_pushes_nothing(it: World) -> None:
    """It loses the lead while it reads; what it then has to push stays undone."""
    host = Host(it)
    it.slurm.held = losing(it, it.slurm.held)  # type: ignore[method-assign]
    host.step(60)
    assert it.slurm.calls["carry_out"] == 0
    assert not host.daemon.leading


def test_a_fenced_leader_stops_nobody(it: World) -> None:
    host = Host(it)
    host.step(60)
    contested(it)
    host.seconds += 120
    it.slurm.advance(120)
    host.daemon.tick()
    real, looked = it.slurm.job, []

    def job(job_id: int) -> object:
        looked.append(job_id)
        it.store.depose()
        return real(job_id)

    it.slurm.job = job  # type: ignore[method-assign, assignment]
    host.daemon.rebalance()
    assert looked
    assert it.slurm.log == []
    assert not host.daemon.leading


def losing(it: World, method: Callable[[], object]) -> Callable[[], object]:
    def lost() -> object:
        found = method()
        it.store.depose()
        return found

    return lost


def test_a_pass_of_a_lost_leadership_ends_before_a_new_one_begins(it: World) -> None:
    host = Host(it)
    host.step(60)
    entered, go_on = threading.Event(), threading.Event()
    real = it.slurm.picture

    def picture(now: datetime) -> object:
        entered.set()
        assert go_on.wait(10)
        return real(now)

    it.slurm.picture = picture  # type: ignore[method-assign, assignment]
    passing = threading.Thread(target=host.daemon.rebalance)
    passing.start()
    assert entered.wait(10)
    it.slurm.picture = real  # type: ignore[method-assign]
    it.store.depose()
    host.daemon.beat()
    host.daemon.tick()
    assert not host.daemon.leading
    go_on.set()
    passing.join(10)
    host.daemon.tick()
    assert host.daemon.leading


def test_a_store_that_cannot_be_reached_ends_the_leadership(it: World) -> None:
    host = Host(it)
    host.step(60)
    real = it.store.watermark

    def unreachable() -> datetime | None:
        raise StoreUnreachable("Postgres is gone")

    it.store.watermark = unreachable  # type: ignore[method-assign]
    host.step(60)
    assert not host.daemon.leading
    it.store.watermark = real  # type: ignore[method-assign]
    host.step(60)
    assert host.daemon.leading


# --- failures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["clock", "runs", "picture", "held"])
def test_what_fails_again_and_again_is_tried_less_and_less_and_recovers_by_itself(it: World, method: str) -> None:
    host = Host(it)
    host.step(60)
    it.slurm.fail(method, SlurmUnreachable("no answer"))
    before = it.slurm.calls[method]
    tried = []
    for minute in range(1, 31):
        asked = it.slurm.calls[method]
        host.seconds += 60
        it.slurm.advance(60)
        host.daemon.tick()
        if it.slurm.calls[method] > asked:
            tried.append(minute)
    assert tried == [1, 2, 4, 8, 13, 18, 23, 28]
    assert before < it.slurm.calls[method]
    it.slurm.heal()
    for _ in range(5):
        host.step(60)
    assert last(it) is not None
    assert it.now - last(it) <= timedelta(minutes=5)  # type: ignore[operator]
    host.step(60)
    assert last(it) == it.now


def test_a_pass_that_fails_is_recorded_and_leaves_the_tick_alone(it: World) -> None:
    host = Host(it)
    host.step(60)
    it.slurm.fail("picture", SlurmUnreachable("slurmctld does not answer"))
    it.slurm.advance(5)
    host.daemon.rebalance()
    assert [(one.phase, one.error) for one in it.store.failures(T0)] == [("rebalance", "slurmctld does not answer")]
    it.slurm.heal()
    host.step(60)
    assert last(it) == it.now


def test_a_fault_of_the_program_ends_the_tick_and_not_the_daemon(it: World) -> None:
    host = Host(it)
    host.step(60)
    real = it.slurm.held
    it.slurm.held = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
    host.step(60)
    assert "ZeroDivisionError" in it.store.failures(T0)[0].error
    it.slurm.held = real  # type: ignore[method-assign]
    host.step(60)
    assert last(it) == it.now


def test_a_slow_accounting_database_does_not_delay_a_rebalance_pass(it: World) -> None:
    host = Host(it)
    host.step(60)
    victim = contested(it)
    host.step(50)
    it.slurm.advance(20)
    entered, go_on = threading.Event(), threading.Event()
    real = it.slurm.runs

    def runs(window: object) -> object:
        entered.set()
        assert go_on.wait(20)
        return real(window)  # type: ignore[arg-type]

    it.slurm.runs = runs  # type: ignore[method-assign, assignment]
    ticking = threading.Thread(target=host.daemon.tick)
    ticking.start()
    assert entered.wait(10)
    begun = time.monotonic()
    for _ in range(5):
        host.daemon.rebalance()
    took = time.monotonic() - begun
    go_on.set()
    ticking.join(20)
    assert it.slurm.log == [f"requeue {victim}"]
    assert took < 2, f"five passes took {took:.1f} s while sacct hung"


# --- clocks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_was_set_stops_everything_until_it_is_right_again(it: World, hours: int) -> None:
    host = Host(it)
    host.step(60)
    pushed = it.slurm.calls["carry_out"]
    runs = it.slurm.calls["runs"]
    host.off = timedelta(hours=hours)
    host.step(60)
    assert "clock" in it.store.failures(T0 - timedelta(hours=2))[0].error
    assert (it.slurm.calls["carry_out"], it.slurm.calls["runs"]) == (pushed, runs)
    assert it.store.watermark() == it.now - timedelta(seconds=60)
    host.off = timedelta(0)
    host.step(60)
    assert last(it) == it.now
    assert it.store.watermark() == it.now


@pytest.mark.parametrize("hours", [1, -1])
def test_nobody_is_stopped_before_its_minimum_because_the_clock_jumped(it: World, hours: int) -> None:
    """The ranking is fresh by the same wrong clock, so that nothing but the comparison with slurmctld's helps."""
    host = Host(it)
    host.step(60)
    contested(it)
    host.step(10)
    host.off = timedelta(hours=hours)
    known = it.store.last_ranking()
    assert known is not None
    it.store.last_ranking = lambda: (host.clock(), known[1])  # type: ignore[method-assign]
    for _ in range(4):
        host.step(10)
    assert it.slurm.log == []
    if hours > 0:
        assert any("clock" in one.error for one in it.store.failures(T0))


def test_a_run_is_past_its_minimum_by_both_clocks_before_it_yields(it: World) -> None:
    """Four seconds of skew are let pass, and do not shorten the minimum."""
    host = Host(it)
    host.step(60)
    victim = contested(it)
    host.off = timedelta(seconds=4)
    host.step(30)
    host.step(27)
    assert it.slurm.log == []
    host.step(5)
    assert it.slurm.log == [f"requeue {victim}"]
    assert [one.outcome for one in it.store.decisions(T0)] == [Outcome.REQUEUED]


def test_the_clocks_are_compared_in_every_tick_and_the_words_say_what_to_do(it: World) -> None:
    it.slurm.advance(0.7)
    it.tick()
    real = it.slurm.clock
    it.slurm.clock = lambda: real() - timedelta(minutes=2)  # type: ignore[method-assign]
    with pytest.raises(ClockSkew, match=r"2m.* behind this host's.*NTP"):
        it.tick()


# --- time -----------------------------------------------------------------------------------------


def test_pauses_double_up_to_the_longest_and_end_with_a_success() -> None:
    now = [0.0]
    pause = Backoff(5, 60, lambda: now[0])
    assert [pause.failed() for _ in range(6)] == [5, 10, 20, 40, 60, 60]
    assert pause.pausing
    now[0] = 60
    assert not pause.pausing
    pause.succeeded()
    assert pause.failed() == 5


def test_turns_come_at_their_interval_and_never_two_at_once() -> None:
    times: list[float] = []
    done = threading.Event()

    def step() -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            time.sleep(0.5)
        if len(times) == 4:
            done.set()

    scheduler = schedule([(step, 0.2)])
    scheduler.start()
    assert done.wait(10)
    scheduler.shutdown(wait=True)
    assert times[1] - times[0] >= 0.5


def test_a_clock_that_was_set_is_noticed_once() -> None:
    wall, monotonic = [1000.0], [0.0]
    watch = ClockWatch(lambda: wall[0], lambda: monotonic[0])
    wall[0], monotonic[0] = 1005.0, 5.0
    assert not watch.was_set()
    wall[0], monotonic[0] = 1010.0 - 3600, 10.0
    assert watch.was_set()
    assert not watch.was_set()


def test_after_the_clock_was_set_back_turns_start_anew() -> None:
    """What is due in an hour, as after such a step, is due now."""
    turn = threading.Event()
    scheduler = schedule([(turn.set, 3600)])
    scheduler.start()
    assert turn.wait(10)
    turn.clear()
    start_anew(scheduler)
    assert turn.wait(10)
    scheduler.shutdown(wait=True)


# --- systemd --------------------------------------------------------------------------------------


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, dict[str, str]]]:
    place = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        ear.bind(str(place))
        ear.settimeout(5)
        yield ear, {"NOTIFY_SOCKET": str(place)}


def test_systemd_is_told_through_the_socket_it_named(systemd: tuple[socket.socket, dict[str, str]]) -> None:
    ear, environment = systemd
    assert notify("READY=1", environment)
    assert ear.recv(100) == b"READY=1"


def test_a_socket_in_the_abstract_name_space_works_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ear:
        name = f"\0fairshare-test-{time.monotonic_ns()}"
        ear.bind(name)
        assert notify("READY=1", {"NOTIFY_SOCKET": "@" + name[1:]})
        assert ear.recv(100) == b"READY=1"


def test_without_systemd_nothing_is_said(tmp_path: Path) -> None:
    assert not notify("READY=1", {})
    assert not notify("READY=1", {"NOTIFY_SOCKET": str(tmp_path / "gone")})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "30000000"}, timedelta(seconds=30)),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
    ],
)
def test_the_watchdog_is_heeded_where_it_is_meant_for_this_process(
    given: dict[str, str], expected: timedelta | None
) -> None:
    assert watchdog(given) == expected


def test_a_daemon_is_alive_while_its_ticks_end_or_its_calls_go_on(it: World) -> None:
    host = Host(it)
    limit = timedelta(minutes=3)
    host.step(60)
    assert host.daemon.alive(limit)
    host.seconds += 170
    assert host.daemon.alive(limit)
    host.seconds += 20
    assert not host.daemon.alive(limit)
    it.slurm.calls["runs"] += 1
    assert host.daemon.alive(limit)
