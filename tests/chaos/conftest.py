"""The chaos suite takes a quarter of an hour and breaks everything: it runs where it is asked for (-m chaos)."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "chaos" in str(config.option.markexpr):
        return
    chosen = [item for item in items if item.get_closest_marker("chaos") is None]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
