"""Every dependency down, slow, hanging, answering nonsense or denying access, alone and in pairs.

The daemon is the real one, on the real command line backend with recorded tools in place of Slurm's, and on a real
Postgres behind a proxy. What must hold under each fault: an error of ours with words, in bounded time; nothing is
pushed; nobody is stopped; and after it, without a restart, a tick that does all of it.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.config import Config
from slurm_fairshare.core.tree import Share
from slurm_fairshare.daemon.loop import Daemon
from slurm_fairshare.errors import FairshareError, StoreUnreachable
from slurm_fairshare.slurm.cli import CommandLine
from slurm_fairshare.slurm.memory import MemorySlurm
from slurm_fairshare.slurm.run import Answer, Runner
from slurm_fairshare.store import journal
from slurm_fairshare.store.memo import StoreMemo
from slurm_fairshare.store.postgres import PostgresStore
from tests.daemon.world import SETS, TEAMS, terms
from tests.proxy import Proxy, proxied

PATIENCE = 1.0
"""Seconds that a statement may take here; a site gives it two minutes."""


@dataclass
class Site:
    slurm: MemorySlurm
    store: PostgresStore
    proxy: Proxy
    daemon: Daemon

    def step(self, seconds: float = 60) -> float:
        """Time goes by, the daemon takes its turns; how long they took in truth."""
        self.slurm.advance(seconds)
        begun = time.monotonic()
        self.daemon.tick()
        self.daemon.rebalance()
        return time.monotonic() - begun

    @property
    def works(self) -> bool:
        last = self.store.last_tick()
        return last is not None and last.at == self.slurm.now and last.pushed


@pytest.fixture
def site(postgres: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("slurm_fairshare.store.connection.SILENCE", 0.5)
    monkeypatch.setattr("slurm_fairshare.store.connection.CONNECT_TIMEOUT", 2)
    monkeypatch.setattr(journal, "LEAD_PATIENCE", PATIENCE)
    with proxied(postgres) as (proxy, address):
        config = Config(cluster="lab", database_url=address)
        store = PostgresStore(
            address, "lab", config.charge_rule, config.ladder, statement_timeout=timedelta(seconds=PATIENCE)
        )
        start = datetime.now(UTC).replace(microsecond=0)
        slurm = MemorySlurm("lab", config.ladder, now=start)
        for name in ("n1", "n2"):
            slurm.add_node(name)
        for team in TEAMS:
            slurm.add_account(team, f"user-{team}")
        store.add_changeset("ada", "the programme", start, SETS, created=start)
        began = slurm.now
        monotonic = lambda: (slurm.now - began).total_seconds()  # noqa: E731
        made = Site(slurm, store, proxy, Daemon(slurm, store, config, lambda: slurm.now, monotonic))
        made.step(0)
        assert made.works
        contest(made)
        yield made
        proxy.heal()
        made.daemon.close()
        store.close()


def contest(site: Site) -> None:
    """Robotics holds both nodes past a minimum of ten seconds; vision waits."""
    for _ in range(2):
        job = site.slurm.submit("robotics", "user-robotics", 8, contract=terms(10))
        site.slurm.start(job)
    site.slurm.submit("vision", "user-vision", 8, contract=terms(60))


# --- Postgres -------------------------------------------------------------------------------------


def down(site: Site) -> None:
    site.proxy.refuse()


def hanging(site: Site) -> None:
    site.proxy.swallow()


def slow(site: Site) -> None:
    site.proxy.delay(5)


POSTGRES: dict[str, Callable[[Site], None]] = {"down": down, "hanging": hanging, "slow": slow}


def refusing(method: str) -> Callable[[Site], None]:
    from slurm_fairshare.errors import SlurmRefused, SlurmUnreachable, SlurmUnreadable

    kinds = {"down": SlurmUnreachable, "nonsense": SlurmUnreadable, "denied": SlurmRefused}
    what, _, part = method.partition(" ")

    def fail(site: Site) -> None:
        parts = {"slurmctld": ("clock", "picture", "held", "job"), "slurmdbd": ("runs", "carry_out")}[part]
        for one in parts:
            site.slurm.fail(one, kinds[what](f"{part} is {what}"))

    return fail


SLURM = {
    f"{part} {what}": refusing(f"{what} {part}")
    for part in ("slurmctld", "slurmdbd")
    for what in ("down", "nonsense", "denied")
}
FAULTS = {f"Postgres {name}": fault for name, fault in POSTGRES.items()} | SLURM
PAIRS = [
    (f"{one} and {two}", (FAULTS[one], FAULTS[two]))
    for one in ("Postgres down", "Postgres hanging")
    for two in ("slurmctld down", "slurmdbd down", "slurmdbd denied")
] + [("slurmctld and slurmdbd down", (FAULTS["slurmctld down"], FAULTS["slurmdbd down"]))]


@pytest.mark.parametrize(
    "faults",
    [pytest.param((fault,), id=name) for name, fault in FAULTS.items()]
    + [pytest.param(faults, id=name) for name, faults in PAIRS],
)
def test_under_a_fault_nothing_is_done_and_after_it_everything(
    site: Site, faults: Sequence[Callable[[Site], None]]
) -> None:
    pushed = site.slurm.calls["carry_out"]
    for fault in faults:
        fault(site)
    for _ in range(3):
        took = site.step(120)
        assert took < 15, f"the turns took {took:.1f} s"
    assert site.slurm.log == []
    assert site.slurm.calls["carry_out"] - pushed <= 3, "a push that is refused is tried once a tick"
    site.proxy.heal()
    site.slurm.heal()
    site.slurm.log.clear()
    wait_for(lambda: bool(site.step(60)) and site.works)
    site.step(5)
    assert site.slurm.log, "vision is served again"


def test_what_is_shown_meanwhile_says_how_old_it_is(site: Site) -> None:
    refusing("down slurmdbd")(site)
    for _ in range(3):
        site.step(60)
    last = site.store.last_tick()
    assert last is not None
    assert site.slurm.now - last.at == timedelta(minutes=3)
    assert {one.phase for one in last.failures} == {"read accounting"}


def test_a_restart_of_postgres_costs_one_tick_at_most(site: Site) -> None:
    site.proxy.cut()
    site.step()
    site.step()
    assert site.works
    assert site.daemon.leading


def test_a_leader_that_is_cut_off_is_replaced_within_two_ticks_and_fenced(site: Site, postgres: str) -> None:
    config = site.daemon.config
    with PostgresStore(postgres, "lab", config.charge_rule, config.ladder) as store:
        second = Daemon(site.slurm, store, config, lambda: site.slurm.now)
        second.tick()
        assert not second.leading
        site.proxy.refuse()  # the server learns of it, as it does of a host that is gone
        wait_for(lambda: not store.led())
        second.tick()
        assert second.leading
        site.proxy.heal()
        with pytest.raises(FairshareError):
            site.store.assure_lead()
        before = site.slurm.calls["carry_out"]
        site.daemon.rebalance()
        site.daemon.tick()
        assert not site.daemon.leading
        assert site.slurm.calls["carry_out"] == before
        second.close()


def wait_for(probe: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not probe():
        assert time.monotonic() < end
        time.sleep(0.2)


def test_a_wait_for_a_postgres_that_hangs_ends_in_words(site: Site) -> None:
    site.proxy.swallow()
    begun = time.monotonic()
    with pytest.raises(StoreUnreachable, match="cannot be used"):
        site.store.watermark()
    assert time.monotonic() - begun < 8


# --- Slurm's tools --------------------------------------------------------------------------------


@contextmanager
def tools(postgres: str, answer: Callable[[Sequence[str], float], Answer]) -> Iterator[tuple[Daemon, CommandLine]]:
    """A daemon on the command line backend whose tools answer so."""
    config = Config(cluster="lab", database_url=postgres, slurm={"timeout": "1s"})
    with PostgresStore(postgres, "lab", config.charge_rule, config.ladder) as store:
        now = datetime.now(UTC)
        store.add_changeset("ada", "one", now, {"": (Share("vision", 1, "vision"),)}, created=now)
        runner = Runner(timeout=1, attempts=2, execute=answer)
        slurm = CommandLine("lab", config.ladder, runner=runner, memo=StoreMemo(store))
        daemon = Daemon(slurm, store, config)
        yield daemon, slurm
        daemon.close()


def never(words: Sequence[str], timeout: float) -> Answer:
    raise subprocess.TimeoutExpired(list(words), timeout)


def missing(words: Sequence[str], timeout: float) -> Answer:
    raise FileNotFoundError(2, "No such file or directory")


ANSWERS: dict[str, Callable[[Sequence[str], float], Answer]] = {
    "hang": never,
    "are missing": missing,
    "print garbage": lambda _words, _timeout: Answer(0, "\x00\ufffd|||\n=:=\nslurm 99.9\n" * 3, ""),
    "print nothing": lambda _words, _timeout: Answer(0, "", ""),
    "print half a line": lambda _words, _timeout: Answer(0, "Configuration data as of 17", ""),
    "deny": lambda _words, _timeout: Answer(1, "", "slurm_load_jobs error: Access/permission denied"),
    "are killed": lambda _words, _timeout: Answer(-9, "", ""),
    "crash": lambda _words, _timeout: Answer(139, "", "Segmentation fault"),
}


@pytest.mark.parametrize("how", ANSWERS)
def test_tools_that_misbehave_end_the_tick_with_words_and_change_nothing(postgres: str, how: str) -> None:
    asked: list[str] = []

    def answer(words: Sequence[str], timeout: float) -> Answer:
        asked.append(" ".join(words))
        return ANSWERS[how](words, timeout)

    with tools(postgres, answer) as (daemon, _):
        begun = time.monotonic()
        daemon.tick()
        daemon.rebalance()
        assert time.monotonic() - begun < 10
        failures = daemon.store.failures(datetime.now(UTC) - timedelta(hours=1))  # type: ignore[attr-defined]
        assert failures
        assert all(one.error for one in failures)
        assert not any("Error:" in one.error for one in failures), f"not one of our errors: {failures}"
        assert daemon.store.last_ranking() is None
    assert not any(word in line for line in asked for word in (" modify ", " update ", "requeue", "scancel"))


def test_a_tool_that_hangs_is_ended_and_does_not_outlive_its_time() -> None:
    runner = Runner(prefix=("sh", "-c", "sleep 30; :"), timeout=0.5, attempts=1)
    begun = time.monotonic()
    with pytest.raises(FairshareError, match=r"did not finish within 0\.5 s"):
        runner.read("squeue")
    assert time.monotonic() - begun < 5


def test_a_hanging_sacct_does_not_delay_a_pass_on_real_connections(site: Site) -> None:
    entered, go_on = threading.Event(), threading.Event()
    real = site.slurm.runs

    def runs(window: object) -> object:
        entered.set()
        assert go_on.wait(30)
        return real(window)  # type: ignore[arg-type]

    site.slurm.advance(5)
    site.daemon.tick()
    site.slurm.advance(10)
    site.slurm.runs = runs  # type: ignore[method-assign, assignment]
    ticking = threading.Thread(target=site.daemon.tick)
    ticking.start()
    assert entered.wait(10)
    begun = time.monotonic()
    site.daemon.rebalance()
    took = time.monotonic() - begun
    go_on.set()
    ticking.join(30)
    assert took < 3, f"the pass took {took:.1f} s"
    assert site.slurm.log


def test_a_postgres_that_denies_access_is_said_and_recovers_without_a_restart(postgres: str) -> None:
    name = f"newcomer_{time.monotonic_ns()}"
    dsn = make_conninfo(postgres, user=name)
    slurm = MemorySlurm("lab", now=datetime.now(UTC).replace(microsecond=0))
    slurm.add_node("n1")
    with PostgresStore(dsn, "lab") as store:
        daemon = Daemon(slurm, store, Config(cluster="lab", database_url=dsn), lambda: slurm.now)
        with pytest.raises(StoreUnreachable, match="role"):
            store.watermark()
        daemon.tick()
        assert not daemon.leading
        assert not slurm.calls["carry_out"]
        with psycopg.connect(postgres, autocommit=True) as connection:
            connection.execute(sql.SQL("create role {} login superuser").format(sql.Identifier(name)))
            try:
                daemon.tick()
                assert daemon.leading
                assert store.last_tick() is not None
            finally:
                daemon.close()
                store.close()
                # A session ends, with its temporary tables, a moment after it was closed.
                there = "select from pg_stat_activity where usename = %s"
                wait_for(lambda: connection.execute(there, (name,)).rowcount == 0)
                connection.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))
