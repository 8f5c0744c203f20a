"""Capacity before the first tick: what slurmdbd remembers, as a step function."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.capacity import Outage, Past, Registration, past_steps
from slurm_fairshare.core.cluster import Capacity, Node
from slurm_fairshare.core.resources import Resources
from slurm_fairshare.core.window import Window

START = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
NAMES = frozenset({"n1", "n2", "n3"})
DRAIN, DOWN = frozenset({"IDLE", "DRAIN"}), frozenset({"DOWN", "NOT_RESPONDING"})


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def registered(hour: float, nodes: frozenset[str] = NAMES, **gpus: int) -> Registration:
    return Registration(at(hour), Resources(gpus or {"h100": 8 * len(nodes)}), nodes)


def out(
    node: str, start: float, end: float | None, states: frozenset[str] = DRAIN, gpus: dict[str, int] | None = None
) -> Outage:
    held = {"h100": 8} if gpus is None else gpus
    return Outage(node, at(start), None if end is None else at(end), states, Resources(held))


def steps(past: Past, start: float = 0, end: float = 24, nodes: tuple[Node, ...] = ()) -> list[tuple[float, str]]:
    """Hour, and for each GPU type installed/down/drained."""
    found = past_steps(past, nodes, Window(at(start), at(end)))
    return [
        (
            (moment - START) / timedelta(hours=1),
            " ".join(f"{one.kind}:{one.installed}/{one.down}/{one.drained}" for one in capacity),
        )
        for moment, capacity in found
    ]


def test_without_a_registration_nothing_is_known_of_the_past() -> None:
    assert steps(Past((), (out("n1", 1, 2),))) == []


def test_capacity_begins_where_the_cluster_was_registered() -> None:
    assert steps(Past((registered(5),))) == [(5, "h100:24/0/0")]


def test_what_was_registered_before_the_window_holds_at_its_start() -> None:
    assert steps(Past((registered(-300),))) == [(0, "h100:24/0/0")]


def test_an_outage_takes_its_nodes_gpus_for_as_long_as_it_lasts() -> None:
    past = Past((registered(-1),), (out("n1", 2, 4), out("n2", 3, 5, DOWN)))
    assert steps(past) == [
        (0, "h100:24/0/0"),
        (2, "h100:24/0/8"),
        (3, "h100:24/8/8"),
        (4, "h100:24/8/0"),
        (5, "h100:24/0/0"),
    ]


def test_an_outage_that_goes_on_is_no_capacity_up_to_the_end() -> None:
    assert steps(Past((registered(-1),), (out("n1", -5, None),))) == [(0, "h100:24/0/8")]


def test_a_node_is_out_once_however_many_records_say_so() -> None:
    past = Past((registered(-1),), (out("n1", 1, 6), out("n1", 2, 4, DOWN)))
    assert steps(past) == [
        (0, "h100:24/0/0"),
        (1, "h100:24/0/8"),
        (2, "h100:24/8/0"),
        (4, "h100:24/0/8"),
        (6, "h100:24/0/0"),
    ]


def test_a_node_that_has_left_the_cluster_takes_nothing_from_it() -> None:
    past = Past((registered(-1), registered(10, frozenset({"n1", "n2"}))), (out("n3", 1, None, DOWN),))
    assert steps(past) == [(0, "h100:24/0/0"), (1, "h100:24/8/0"), (10, "h100:16/0/0")]


def test_types_are_kept_apart_and_one_that_goes_is_gone() -> None:
    past = Past((registered(-1, h100=16, a100=8), registered(10, h100=16)), (out("n3", 1, 2, gpus={"a100": 8}),))
    assert steps(past) == [
        (0, "a100:8/0/0 h100:16/0/0"),
        (1, "a100:8/0/8 h100:16/0/0"),
        (2, "a100:8/0/0 h100:16/0/0"),
        (10, "a100:0/0/0 h100:16/0/0"),
    ]


def test_an_outage_without_gpus_takes_what_the_node_has_by_its_definition() -> None:
    node = Node("n1", frozenset({"IDLE"}), Resources({"h100": 8}), Resources())
    past = Past((registered(-1),), (out("n1", 2, 4, gpus={}),))
    assert steps(past, nodes=(node,)) == [(0, "h100:24/0/0"), (2, "h100:24/0/8"), (4, "h100:24/0/0")]


def test_how_many_were_allocated_is_not_known() -> None:
    (step,) = past_steps(Past((registered(-1),)), (), Window(at(0), at(1)))
    assert step == (at(0), (Capacity("h100", 24, 0, 0, None),))


OUTAGES = st.lists(
    st.builds(
        lambda node, start, length, down, gpus: out(
            node, start, None if length is None else start + length, DOWN if down else DRAIN, {"h100": gpus}
        ),
        st.sampled_from(["n1", "n2", "n3", "n9"]),
        st.integers(-10, 30),
        st.none() | st.integers(-2, 20),
        st.booleans(),
        st.integers(0, 40),
    ),
    max_size=8,
)


@given(OUTAGES, st.lists(st.integers(-20, 30), max_size=4), st.randoms())
def test_whatever_the_records_say_no_capacity_is_negative_and_their_order_does_not_matter(
    outages: list[Outage], starts: list[int], random: object
) -> None:
    registrations = [registered(start, h100=8 + index) for index, start in enumerate(sorted(set(starts)))]
    window = Window(at(0), at(24))
    found = past_steps(Past(tuple(registrations), tuple(outages)), (), window)
    for moment, capacity in found:
        assert window.start <= moment < window.end
        assert all(min(one.installed, one.down, one.drained, one.in_service) >= 0 for one in capacity)
    assert [moment for moment, _ in found] == sorted({moment for moment, _ in found})
    random.shuffle(registrations)  # type: ignore[attr-defined]
    assert past_steps(Past(tuple(registrations), tuple(outages)), (), window) == found
