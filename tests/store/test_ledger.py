"""What every store promises of the ledger."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from slurm_fairshare.core.contract import Contract, Priority
from slurm_fairshare.core.records import Batch
from slurm_fairshare.core.resources import ChargeRule, Resources
from slurm_fairshare.core.runs import RejectedRow
from slurm_fairshare.core.window import Step, Weight, Window, milli_gpu_seconds
from slurm_fairshare.errors import StoreError
from slurm_fairshare.store.memory import MemoryStore
from slurm_fairshare.store.postgres import PostgresStore
from tests.store.build import CLUSTER, at, batch, capacity, gpus, job, node, picture, run, span
from tests.store.conftest import AnyStore

HOUR = 3600
BOX = Weight()


def used(store: AnyStore, start: float, end: float, now: float | None = None) -> dict[str, float]:
    """GPU-hours by account."""
    found = store.usage(span(start, end), BOX, at(end if now is None else now))
    return {account: seconds / HOUR for account, seconds in found.items()}


# --- runs -----------------------------------------------------------------------------------------


def test_a_run_comes_back_as_it_was_recorded(store: AnyStore) -> None:
    full = replace(
        run("k1", 1, 2, contract=Contract(14_400, resumable=True, priority=Priority.HIGH, notice="USR1")),
        held=Resources({"h100": 2, "a100-sxm": 1, "": 3}, 17, 65_536),
        label="12_3",
        account="test@Biology.x+y_z",
        nodes="n[1-3],m7",
        flag="end before start",
    )
    bare = replace(run("k2", None, None), eligible=None, contract=None)
    store.record_runs(batch(full, bare), at(24))
    assert store.runs_of(1) == (full,)
    assert store.runs_of(2) == (bare,)


def test_recording_a_batch_again_changes_nothing(store: AnyStore) -> None:
    one = batch(run("k1", 1, 3), run("k2", 2, None))
    for _ in range(3):
        store.record_runs(one, at(24))
    assert used(store, 0, 24) == {"nlp": 2 + 22}
    assert store.watermark() == at(24)


def test_a_late_correction_replaces_what_was_known(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None, account="nlp")), at(2))
    store.record_runs(batch(run("k1", 1, 3, account="vision")), at(4))
    assert used(store, 0, 24) == {"vision": 2}
    assert store.runs_of(1)[0].end == at(3)


def test_what_was_read_earlier_never_overwrites_what_was_read_later(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 3)), at(4))
    store.record_runs(batch(run("k1", 1, None)), at(2))
    assert used(store, 0, 24) == {"nlp": 2}


def test_a_key_twice_in_one_batch_counts_once_and_its_end_wins(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 3), run("k1", 1, None)), at(4))
    assert used(store, 0, 24) == {"nlp": 2}


def test_every_attempt_of_a_requeued_job_counts_once(store: AnyStore) -> None:
    attempts = [
        run("a", 1, 2, job_id=7, state="REQUEUED"),
        run("b", 3, 5, job_id=7, state="PREEMPTED"),
        run("c", 6, 9, job_id=7, state="NODE_FAIL"),
        run("d", 10, 14, job_id=7),
    ]
    store.record_runs(batch(*attempts), at(24))
    assert used(store, 0, 24) == {"nlp": 1 + 2 + 3 + 4}
    assert [one.key for one in store.runs_of(7)] == ["a", "b", "c", "d"]


def test_a_run_that_never_started_counts_nothing(store: AnyStore) -> None:
    store.record_runs(batch(replace(run("k1", None, 3), state="CANCELLED")), at(24))
    assert used(store, 0, 24) == {}
    assert store.runs(span(0, 24)) == ()


def test_a_run_that_ends_before_it_starts_counts_nothing(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 5, 3)), at(24))
    assert used(store, 0, 24) == {}


def test_unallocated_runs_are_in_nobodys_usage(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 2, charged=False)), at(24))
    assert used(store, 0, 24) == {}


def test_accounts_are_one_whatever_their_case(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 2, account="NLP"), run("k2", 1, 2, account="nlp")), at(24))
    assert used(store, 0, 24) == {"nlp": 2}


def test_a_run_of_months_counts_its_part_of_each_window(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", -2000, None, count=8)), at(24))
    assert used(store, 0, 24) == {"nlp": 24 * 8}
    assert used(store, -168, -144, now=24) == {"nlp": 24 * 8}


def test_seconds_at_a_border_fall_on_their_side_of_it(store: AnyStore) -> None:
    second = 1 / HOUR
    store.record_runs(batch(run("k1", 12 - second, 12 + second)), at(24))
    assert store.charges(span(0, 12), at(24)) == {"nlp": 1000}
    assert store.charges(span(12, 24), at(24)) == {"nlp": 1000}


def test_a_million_gpus_for_ten_years_are_exact(store: AnyStore) -> None:
    years = 24 * 3650
    store.record_runs(batch(run("k1", -years, 0, count=1_000_000), run("k2", -1, 0)), at(24))
    exact = milli_gpu_seconds([run("k1", -years, 0, count=1_000_000), run("k2", -1, 0)], span(-years, 0), at(0))
    assert store.charges(span(-years, 0), at(0)) == {"nlp": exact} == {"nlp": (1_000_000 * years + 1) * 3_600_000}


def test_clusters_do_not_mix(store: AnyStore) -> None:
    with pytest.raises(StoreError, match="set `cluster` to Slurm's ClusterName"):
        store.record_runs(batch(run("k1", 1, 2, cluster="elsewhere")), at(24))
    assert store.watermark() is None


# --- the watermark --------------------------------------------------------------------------------


def test_there_is_no_watermark_before_the_first_poll(store: AnyStore) -> None:
    assert store.watermark() is None


def test_the_watermark_follows_polls_that_touch(store: AnyStore) -> None:
    store.record_runs(batch(since=0, until=24), at(50))
    store.record_runs(batch(since=23, until=48), at(50))
    assert store.watermark() == at(48)


def test_the_watermark_does_not_jump_a_gap(store: AnyStore) -> None:
    store.record_runs(batch(since=0, until=24), at(50))
    store.record_runs(batch(since=30, until=48), at(50))
    assert store.watermark() == at(24)
    store.record_runs(batch(since=20, until=40), at(50))
    assert store.watermark() == at(40)


def test_reading_the_past_again_does_not_move_the_watermark_back(store: AnyStore) -> None:
    store.record_runs(batch(since=0, until=24), at(50))
    store.record_runs(batch(since=-24, until=2), at(50))
    assert store.watermark() == at(24)


def test_the_newest_end_is_that_of_any_run_that_has_one(store: AnyStore) -> None:
    assert store.newest_end() is None
    store.record_runs(batch(run("k1", 1, None)), at(24))
    assert store.newest_end() is None
    store.record_runs(batch(run("k2", 2, 5), run("k3", 3, 4, charged=False), run("k4", 6, None)), at(24))
    assert store.newest_end() == at(5)


# --- rows that could not be read ------------------------------------------------------------------


def test_an_unreadable_row_is_kept_once_and_stops_nothing(store: AnyStore) -> None:
    bad = RejectedRow("sacct", "12|x|\u00e9|garbage", "job id not understood")
    for hour in (24, 25, 26):
        store.record_runs(batch(run("k1", 1, 2), rejected=(bad,)), at(hour))
    assert [(one.row, one.first) for one in store.rejected(at(0))] == [(bad, at(24))]
    assert store.rejected(at(25)) == ()
    assert used(store, 0, 24) == {"nlp": 1}


# --- runs without an end --------------------------------------------------------------------------


def test_without_a_picture_a_running_run_counts_up_to_now(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    assert used(store, 0, 24, now=3) == {"nlp": 2}
    assert used(store, 0, 24, now=5) == {"nlp": 4}


def test_a_run_alive_in_the_newest_picture_grows_with_the_clock(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    store.record_picture(picture(2, job(1, 1)), ())
    assert used(store, 0, 24, now=10) == {"nlp": 9}


@pytest.mark.parametrize("state", ["RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING"])
def test_whatever_holds_gpus_is_alive(store: AnyStore, state: str) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    store.record_picture(picture(2, job(1, 1, state=state)), ())
    assert used(store, 0, 24, now=10) == {"nlp": 9}


def test_a_runaway_counts_as_long_as_it_was_seen_alive(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    store.record_picture(picture(2, job(1, 1)), ())
    store.record_picture(picture(5, job(1, 1)), ())
    store.record_picture(picture(6), ())
    for now in (7, 70, 700):
        assert used(store, 0, now) == {"nlp": 4}


def test_a_runaway_that_was_never_seen_alive_counts_nothing(store: AnyStore) -> None:
    store.record_picture(picture(6), ())
    store.record_runs(batch(run("k1", 1, None)), at(7))
    assert used(store, 0, 24) == {}


def test_a_run_that_started_after_the_newest_picture_counts_up_to_now(store: AnyStore) -> None:
    store.record_picture(picture(6), ())
    store.record_runs(batch(run("k1", 7, None)), at(8))
    assert used(store, 0, 24, now=10) == {"nlp": 3}


def test_a_run_seen_again_grows_again(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    store.record_picture(picture(2, job(1, 1)), ())
    store.record_picture(picture(3), ())
    store.record_picture(picture(4, job(1, 1)), ())
    assert used(store, 0, 24, now=10) == {"nlp": 9}


def test_the_old_run_of_a_requeued_job_is_not_alive_by_its_new_one(store: AnyStore) -> None:
    store.record_runs(batch(run("a", 1, None, job_id=7)), at(2))
    store.record_picture(picture(2, job(7, 1)), ())
    store.record_picture(picture(4, job(7, 3)), ())
    # The first run as long as it was seen alive (1 to 2), the second from the picture (3 to now).
    assert used(store, 0, 24, now=10) == {"nlp": 1 + 7}


def test_usage_does_not_jump_when_a_run_ends(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, None)), at(2))
    store.record_picture(picture(2, job(1, 1)), ())
    before = used(store, 0, 24, now=6)
    store.record_picture(picture(6), ())
    store.record_runs(batch(run("k1", 1, 6)), at(6))
    assert used(store, 0, 24, now=6) == before == {"nlp": 5}


# --- jobs accounting does not know yet ------------------------------------------------------------


def test_a_live_job_without_a_row_counts_from_the_picture(store: AnyStore) -> None:
    store.record_picture(picture(4, job(1, 2, count=4), job(2, 2, qos="fs-unallocated"), job(3, None)), ())
    assert used(store, 0, 24, now=5) == {"nlp": 3 * 4}


def test_a_live_job_counts_once_when_its_row_arrives(store: AnyStore) -> None:
    store.record_picture(picture(4, job(1, 2)), ())
    store.record_runs(batch(run("k1", 2, None)), at(5))
    assert used(store, 0, 24, now=5) == {"nlp": 3}
    store.record_runs(batch(run("k1", 2, 4.5)), at(5))
    assert used(store, 0, 24, now=5) == {"nlp": 2.5}


def test_a_job_that_left_before_its_row_arrived_is_not_forgotten(store: AnyStore) -> None:
    store.record_picture(picture(4, job(1, 2)), ())
    store.record_picture(picture(6, job(1, 2)), ())
    store.record_picture(picture(8), ())
    assert used(store, 0, 24) == {"nlp": 4}
    store.record_runs(batch(run("k1", 2, 7)), at(9))
    assert used(store, 0, 24) == {"nlp": 5}
    store.record_picture(picture(9), ())
    assert used(store, 0, 24) == {"nlp": 5}


def test_an_earlier_run_of_the_number_is_another_job(store: AnyStore) -> None:
    store.record_runs(batch(run("old", -100, -90, job_id=1)), at(2))
    store.record_picture(picture(4, job(1, 2)), ())
    assert used(store, 0, 24, now=5) == {"nlp": 3}


def test_a_resized_job_counts_each_size_once(store: AnyStore) -> None:
    store.record_picture(picture(4, job(1, 2, count=2)), ())
    small = run("a", 2, 3, job_id=1, count=4, state="RESIZING")
    store.record_runs(batch(small), at(4))
    assert used(store, 0, 24, now=5) == {"nlp": 4 + 2 * 2}
    store.record_runs(batch(small, run("b", 3, None, job_id=1, count=2)), at(5))
    assert used(store, 0, 24, now=5) == {"nlp": 4 + 2 * 2}
    store.record_picture(picture(6), ())
    assert used(store, 0, 24) == {"nlp": 4 + 2 * 1}


def test_the_sites_rule_values_what_the_picture_shows(postgres: str) -> None:
    rule = ChargeRule(weights={"h100": 0.5}, dominant=True)
    greedy = replace(job(1, 0, count=1), wanted=Resources({"h100": 1}, 64, 0))
    seen = picture(4, greedy, nodes=(node(),))
    with PostgresStore(postgres, CLUSTER, rule) as on_disk:
        for store in (MemoryStore(CLUSTER, rule), on_disk):
            store.record_picture(seen, (capacity(8),))
            # All the CPUs of 8 GPUs that are worth a half each.
            assert used(store, 0, 1, now=4) == {"nlp": 4}
            assert store.capacity(span(4, 5)) == (Step(at(4), 4.0),)


# --- the picture ----------------------------------------------------------------------------------


def test_the_newest_picture_comes_back_whole(store: AnyStore) -> None:
    waiting = job(
        5,
        None,
        reason="(MaxGRESPerAccount)",
        contract=None,
        eligible=None,
        time_limit=None,
        array_size=6,
        array_limit=2,
        het_leader=4,
        restarts=3,
        name="what | a name",
        constraints=("features=ib",),
        requeueable=False,
        batch=False,
        label="5_[1-6%2]",
    )
    seen = picture(
        4, job(1, 2, by_node={"n1": gpus(1), "n2": gpus(2)}), waiting, nodes=(node("n1", 1, "DRAIN", "IDLE"),)
    )
    assert store.latest_queue() is None
    store.record_picture(picture(3, job(9, 1), nodes=(node("gone"),)), ())
    store.record_picture(seen, ())
    assert store.latest_queue() == seen


def test_an_older_picture_does_not_replace_a_newer(store: AnyStore) -> None:
    newer = picture(4, job(1, 2))
    store.record_picture(newer, ())
    store.record_picture(picture(3, job(2, 1)), ())
    assert store.latest_queue() == newer
    assert used(store, 0, 24, now=4) == {"nlp": 2}


# --- capacity -------------------------------------------------------------------------------------


def test_capacity_is_a_step_function_of_what_is_in_service(store: AnyStore) -> None:
    store.record_picture(picture(1), (capacity(16),))
    store.record_picture(picture(2), (capacity(16, down=8),))
    store.record_picture(picture(3), (capacity(16, down=8),))
    store.record_picture(picture(4), (capacity(16, drained=4),))
    assert store.capacity(span(0, 24)) == (Step(at(1), 16), Step(at(2), 8), Step(at(4), 12))


def test_the_step_in_force_when_the_window_starts_is_its_first(store: AnyStore) -> None:
    store.record_picture(picture(1), (capacity(16),))
    store.record_picture(picture(2), (capacity(8),))
    store.record_picture(picture(6), (capacity(4),))
    assert store.capacity(span(3, 6)) == (Step(at(3), 8),)
    assert store.capacity(span(2, 7)) == (Step(at(2), 8), Step(at(6), 4))
    assert store.capacity(span(-5, 1)) == ()


def test_capacity_adds_types_and_a_type_that_goes_is_gone(store: AnyStore) -> None:
    store.record_picture(picture(1), (capacity(16), capacity(8, kind="a100")))
    store.record_picture(picture(2), (capacity(16),))
    assert store.capacity(span(0, 24)) == (Step(at(1), 24), Step(at(2), 16))


def test_capacity_is_kept_only_where_something_changed(store: AnyStore) -> None:
    for hour in range(5):
        store.record_picture(picture(hour), (capacity(16, allocated=3),))
    store.record_picture(picture(5), (capacity(16, allocated=4),))
    kept = store.capacity_history(span(0, 24))
    assert kept == ((at(0), capacity(16, allocated=3)), (at(5), capacity(16, allocated=4)))
    assert store.capacity(span(0, 24)) == (Step(at(0), 16),)


# --- weights and adjustments ----------------------------------------------------------------------


def test_a_half_life_weighs_each_hour_by_its_age(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 0, 24, count=2), run("k2", 3.5, 3.6, account="vision")), at(24))
    weight = Weight(timedelta(hours=12))
    found = store.usage(span(0, 24), weight, at(24))
    hours = {h: weight.mean(Window(at(h), at(h + 1)), at(24)) for h in range(24)}
    assert found["nlp"] == pytest.approx(2 * HOUR * sum(hours.values()), rel=1e-12)
    assert found["vision"] == pytest.approx(360 * hours[3], rel=1e-12)


def test_hours_add_up_to_the_whole(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 0.2, 5.7, count=3), run("k2", 2.1, 2.2), run("k3", -9, 40)), at(24))
    window = span(0.13, 7.77)
    by_hour = store.charges_by_hour(window, at(24))
    assert [part for part, _ in by_hour] == list(window.hours())
    assert sum(part["nlp"] for _, part in by_hour) == store.charges(window, at(24))["nlp"]


def test_an_adjustment_counts_in_its_window_until_it_expires(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 3)), at(24))
    credit = store.add_adjustment("NLP", -HOUR * 1000, at(5), "dan", "the switch failed", at(48))
    debit = store.add_adjustment("vision", 2 * HOUR * 1000, at(6), "dan", "ran outside Slurm")
    assert used(store, 0, 24) == {"nlp": 1, "vision": 2}
    assert used(store, 0, 6, now=24) == {"nlp": 1}
    assert used(store, 0, 24, now=48) == {"nlp": 2, "vision": 2}
    assert store.charges(span(0, 24), at(24)) == {"nlp": 2 * HOUR * 1000}
    assert store.adjustments(span(0, 24)) == (credit, debit)


def test_an_adjustment_is_weighed_like_the_hour_it_was_made_in(store: AnyStore) -> None:
    store.add_adjustment("nlp", HOUR * 1000, at(5.5), "dan", "because")
    weight = Weight(timedelta(hours=12))
    found = store.usage(span(0, 24), weight, at(24))
    assert found == {"nlp": pytest.approx(HOUR * weight.mean(span(5, 6), at(24)))}


def test_an_empty_window_holds_nothing(store: AnyStore) -> None:
    store.record_runs(batch(run("k1", 1, 3)), at(24))
    assert store.usage(span(2, 2), BOX, at(24)) == {}
    assert store.usage(span(2, 2), Weight(timedelta(hours=1)), at(24)) == {}


def test_small_facts_are_kept_by_name(store: AnyStore) -> None:
    assert store.recall("qos") is None
    store.remember("qos", {"a": [1, None, "x"]}, at(1))
    store.remember("qos", {"a": 2}, at(2))
    assert store.recall("qos") == (at(2), {"a": 2})


def test_an_empty_batch_is_fine(store: AnyStore) -> None:
    store.record_runs(Batch(span(0, 1), ()), at(1))
    assert store.watermark() == at(1)
