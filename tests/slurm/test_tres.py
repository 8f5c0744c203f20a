"""GPUs are counted once, whatever Slurm prints beside them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_fairshare.core.resources import UNTYPED
from slurm_fairshare.slurm.tres import pairs, resources

CASES = {
    "only the total": ("cpu=8,gres/gpu=2,mem=65536M,node=1", {UNTYPED: 2}),
    "only the type": ("gres/gpu:nvidia_geforce_rtx_2080_ti=1", {"nvidia_geforce_rtx_2080_ti": 1}),
    "total and type are the same GPU": (
        "cpu=10,mem=100G,node=1,billing=10,gres/gpu=1,gres/gpu:a100=1",
        {"a100": 1},
    ),
    "two types and their total": ("gres/gpu=3,gres/gpu:a100=1,gres/gpu:h100=2", {"a100": 1, "h100": 2}),
    "two types without a total": ("gres/gpu:a100=1,gres/gpu:h100=2", {"a100": 1, "h100": 2}),
    "GPUs of a type nobody tracks": ("gres/gpu=5,gres/gpu:h100=2", {UNTYPED: 3, "h100": 2}),
    "a slice of a GPU is a type": ("gres/gpu=2,gres/gpu:1g.10gb=2", {"1g.10gb": 2}),
    "hyphens in a type": ("gres/gpu:a100-sxm4-80gb=8,gres/gpu=8", {"a100-sxm4-80gb": 8}),
    "memory and utilisation of GPUs are no GPUs": ("gres/gpu=1,gres/gpumem=40G,gres/gpuutil=93", {UNTYPED: 1}),
    "shards and MPS are no GPUs": ("gres/shard=4,gres/mps=50,gres/shard:h100=4", {}),
    "another typed GRES beside them": ("gres/gpu=1,gres/tmpfs:foo=2,gres/tmpfs:bar=7", {UNTYPED: 1}),
    "no GPU at all": ("billing=1,cpu=1,mem=1000M,node=1", {}),
    "a type with none of it": ("gres/gpu=1,gres/gpu:a100=0,gres/gpu:h100=1", {"h100": 1}),
    "never started": ("", {}),
    "a fractional billing": ("billing=2.5,gres/gpu=1", {UNTYPED: 1}),
    "energy larger than 63 bits": ("energy=18446744073709551614,gres/gpu=1", {UNTYPED: 1}),
    "300 characters of licences in front": (
        ",".join(f"license/solver{n}=1" for n in range(20)) + ",gres/gpu=4",
        {UNTYPED: 4},
    ),
}


@pytest.mark.parametrize(("text", "gpus"), CASES.values(), ids=CASES.keys())
def test_gpus_of(text: str, gpus: dict[str, int]) -> None:
    held, odd = resources(text)
    assert (held.gpus, odd) == (gpus, "")


def test_types_that_add_up_to_more_than_the_whole_give_the_whole_and_a_flag() -> None:
    held, odd = resources("gres/gpu=2,gres/gpu:a100=3")
    assert held.gpu_count == 2
    assert "more than" in odd


MEMORY = {"65536M": 65536, "125G": 128_000, "31.25G": 32_000, "1.5T": 1_572_864, "4000": 4000, "2048K": 2}


@pytest.mark.parametrize(("amount", "megabytes"), MEMORY.items())
def test_memory_is_megabytes(amount: str, megabytes: int) -> None:
    assert resources(f"mem={amount}")[0].memory_mb == megabytes


UNREADABLE = ["gres/gpu", "gres/gpu=", "=4", "gres/gpu=two", "gres/gpu=-1", "gres/gpu=1,gres/gpu=1", "gres/gpu=²"]


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_cannot_be_read_is_an_error_and_never_zero(text: str) -> None:
    with pytest.raises(ValueError, match="TRES"):
        resources(text)


KINDS = st.text("abcdefgh0123456789._-", min_size=1, max_size=12)


@given(st.dictionaries(KINDS, st.integers(1, 4096), max_size=4), st.integers(0, 64), st.randoms())
def test_the_sum_by_type_is_always_the_total(typed: dict[str, int], rest: int, random: object) -> None:
    parts = [f"gres/gpu:{kind}={count}" for kind, count in typed.items()]
    parts += [f"gres/gpu={sum(typed.values()) + rest}", "cpu=4", "gres/gpumem=7"]
    random.shuffle(parts)  # type: ignore[attr-defined]
    held, odd = resources(",".join(parts))
    assert (held.gpu_count, odd) == (sum(typed.values()) + rest, "")
    assert {kind: n for kind, n in held.gpus.items() if kind != UNTYPED} == typed


@given(st.text())
def test_any_text_is_read_or_refused_and_nothing_else(text: str) -> None:
    try:
        found = pairs(text)
    except ValueError:
        return
    assert all(found.values())
