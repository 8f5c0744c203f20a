"""What is shown of the settings, above all what is not."""

from __future__ import annotations

import pytest

from slurm_fairshare.config import Config
from slurm_fairshare.reports.settings import hide_passwords, settings_of


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://fairshare:s3cret@db/fairshare",
        "postgresql://fairshare:se:s3cret@x@db:5432/fairshare",
        "postgresql://:s3cret@db/fairshare",
        "postgresql://db/fairshare?user=a&password=s3cret&sslmode=require",
        "postgresql://db/fairshare?sslpassword=s3cret",
        "host=db password=s3cret user=a",
        "host=db password='s3cret with blanks' user=a",
        "host=db PASSWORD = s3cret",
    ],
)
def test_a_password_is_never_shown(address: str) -> None:
    assert "s3cret" not in hide_passwords(address)
    assert "***" in hide_passwords(address)


def test_an_address_without_a_password_is_shown_as_it_is() -> None:
    assert hide_passwords("postgresql://fairshare@db:5432/fairshare") == "postgresql://fairshare@db:5432/fairshare"


def test_every_setting_says_what_it_does() -> None:
    assert [one.name for one in settings_of(Config()) if not one.about] == []


def test_a_changed_setting_shows_beside_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_FAIRSHARE_DAEMON__INTERVAL", raising=False)
    config = Config(daemon={"interval": "30s"})  # type: ignore[arg-type]
    found = {one.name: one for one in settings_of(config)}
    assert found["daemon.interval"].value == '"30s"'
    assert found["daemon.interval"].default == '"1m"'
    assert found["daemon.interval"].variable == "SLURM_FAIRSHARE_DAEMON__INTERVAL"
