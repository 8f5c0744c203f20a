"""Fifty polls, each of which is killed with SIGKILL somewhere, while Postgres and slurmdbd are restarted: nothing is
lost and nothing counted twice."""

from __future__ import annotations

import multiprocessing
import random
import secrets
import threading
from collections.abc import Iterator
from multiprocessing.connection import Connection

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql
from psycopg.conninfo import make_conninfo

from slurm_fairshare.cli.app import App
from slurm_fairshare.cli.main import main
from slurm_fairshare.core.window import Window
from slurm_fairshare.daemon.loop import Daemon, utc_now
from slurm_fairshare.errors import FairshareError
from slurm_fairshare.store.schema import upgrade
from tests.cluster.cluster import Cluster
from tests.cluster.product import Product

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

POLLS = 50
SLURMDBD_AT, POSTGRES_AT = (8, 24, 41), (16, 33)
TEAMS = {"chaosa": 2.0, "chaosb": 1.0}


@pytest.fixture
def database(clean_cluster: Cluster) -> Iterator[str]:
    """A database of its own on the cluster's Postgres, which a test may restart."""
    name = f"chaos_{secrets.token_hex(4)}"
    with psycopg.connect(clean_cluster.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    dsn = make_conninfo(clean_cluster.database_url, dbname=name)
    upgrade(dsn)
    yield dsn
    with psycopg.connect(clean_cluster.database_url, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


def open_product(cluster: Cluster, dsn: str) -> Product:
    return Product.on(cluster, dsn, daemon={"first_poll": "1h", "poll_overlap": "2m"})


def poll_for_ever(cluster: Cluster, dsn: str, begun: Connection) -> None:
    """The daemon's tick, again and again, in a process of its own; it says when one begins."""
    product = open_product(cluster, dsn)
    daemon = Daemon(product.slurm, product.store, product.config)
    while True:
        begun.send(True)
        daemon.tick()


class Killer:
    """Starts a daemon, waits until it polls, and kills it somewhere in it."""

    def __init__(self, cluster: Cluster, dsn: str, chance: random.Random) -> None:
        self.cluster, self.dsn, self.chance = cluster, dsn, chance
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["tests.cluster.test_ledger_chaos"])

    def once(self) -> None:
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=poll_for_ever, args=(self.cluster, self.dsn, theirs), daemon=True)
        process.start()
        theirs.close()
        assert ours.poll(60), "the daemon's process did not begin to poll"
        # From the first question to the commit of a tick it takes about a second.
        process.join(self.chance.uniform(0, 1.6))
        assert process.is_alive(), "the daemon's process ended by itself"
        process.kill()
        process.join()
        ours.close()


def work(product: Product, round_: int, chance: random.Random) -> None:
    """A few jobs more, and now and then one that is requeued or cancelled."""
    cluster = product.cluster
    user, team = chance.choice((("alice", "chaosa"), ("bob", "chaosb")))
    said = () if chance.random() < 0.3 else ("--comment", "min_runtime=10m resumable=yes")
    words = ("-t", "20", f"--gres=gpu:{chance.choice((1, 2, 4))}", *said)
    tasks = (f"--array=1-{chance.choice((2, 3))}",) if round_ % 5 == 0 else ()
    cluster.sbatch(user, *words, *tasks, account=team, script=f"sleep {chance.choice((1, 3, 8, 20))}")
    running = cluster.slurm_output("squeue", "-h", "-a", "-t", "R", "-o", "%A").split()
    if running and round_ % 3 == 0:
        cluster.sh("slurmctld", ["scontrol", "requeue", chance.choice(running)], check=False)
    elif running and round_ % 3 == 1:
        cluster.sh("slurmctld", ["scancel", chance.choice(running)], check=False)


def test_fifty_polls_killed_anywhere_and_restarts_in_between_lose_and_double_nothing(
    clean_cluster: Cluster, database: str
) -> None:
    chance = random.Random(7)
    begun = utc_now()
    product = open_product(clean_cluster, database)
    product.fund(TEAMS)
    for user, team in (("alice", "chaosa"), ("bob", "chaosb")):
        clean_cluster.sacctmgr("add", "user", user, f"account={team}")
    product.tick()
    killer = Killer(clean_cluster, database, chance)
    restarts: list[threading.Thread] = []
    for number in range(POLLS):
        service = "slurmdbd" if number in SLURMDBD_AT else "postgres" if number in POSTGRES_AT else ""
        if service:
            restarts.append(threading.Thread(target=clean_cluster.restart, args=(service,)))
            restarts[-1].start()
        work(product, number, chance)
        killer.once()
    for restart in restarts:
        restart.join()
    settle(product)
    app = App(product.config, product.store, product.slurm)
    said = CliRunner().invoke(main, ["audit", "--since", begun.isoformat()], obj=app, env={"COLUMNS": ""})
    assert said.exit_code == 0, said.output
    assert "No difference." in said.stdout
    assert len(product.store.runs(Window(begun, utc_now()))) > POLLS / 2
    product.store.close()


def settle(product: Product) -> None:
    """Everything has ended, slurmdbd knows it, and a daemon that is left alone reads it."""
    cluster = product.cluster
    cluster.cancel_all_jobs()

    def open_rows() -> str:
        words = ("sacct", "-a", "-X", "-D", "-n", "-P", "-S", "now-1hours", "-s", "R,S", "-A", ",".join(TEAMS))
        return cluster.slurm_output(*words)

    cluster.wait(open_rows, 60, "the end of every run in slurmdbd", until=lambda text: not text)
    cluster.wait(lambda: _complete(product), 120, "a ledger that is complete", until=bool)


def _complete(product: Product) -> bool:
    """Whether a tick has moved the watermark past the end of all that ran."""
    try:
        report = product.tick()
    except FairshareError as error:  # the last killed daemon's session may hold the leadership for a moment
        product.errors.append(str(error))
        return False
    return product.store.watermark() == report.at
