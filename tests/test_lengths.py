"""A length of time that is none is an error where it is written, never the end of a rule."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_fairshare.config import load
from slurm_fairshare.errors import ConfigError


@pytest.mark.parametrize("word", ['"0s"', '"-1d"', '""', '"7"', '"1h2"', "7", "0", "-1", '"1 fortnight"', "true"])
@pytest.mark.parametrize("name", ["lookback", "half_life"])
def test_a_window_or_half_life_that_is_none_is_refused_by_name(tmp_path: Path, name: str, word: str) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f"[fairshare]\n{name} = {word}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"fairshare\.{name}"):
        load(file)


@pytest.mark.parametrize(("word", "days"), [("7d", 7), ("168h", 7), ("2-00:00:00", 2)])
def test_a_length_is_what_its_unit_says(tmp_path: Path, word: str, days: float) -> None:
    file = tmp_path / "site.toml"
    file.write_text(f'[fairshare]\nlookback = "{word}"\n', encoding="utf-8")
    assert load(file).fairshare.lookback.total_seconds() == days * 86_400
