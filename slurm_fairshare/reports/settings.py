"""`settings show`, and the table of settings in the reference: every setting with value, default and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from slurm_fairshare.config import Config
from slurm_fairshare.core.contract import spell
from slurm_fairshare.reports.table import Column, Report


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `name` as `section.name`; value and default as the settings file writes them."""

    name: str
    value: str
    default: str
    about: str

    @property
    def changed(self) -> bool:
        return self.value != self.default

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return "SLURM_FAIRSHARE_" + self.name.replace(".", "__").upper()


def settings_of(config: Config) -> tuple[Setting, ...]:
    """Every setting, those of no section first, in the order in which config.py describes them."""
    return tuple(sorted(_walk(config, ""), key=lambda setting: "." in setting.name))


def _walk(model: BaseModel, section: str) -> Iterator[Setting]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{name}.")
        else:
            yield Setting(section + name, _written(value), _written(_default(field)), field.description or "")


def _default(field: FieldInfo) -> Any:
    return field.get_default(call_default_factory=True)


def _written(value: Any) -> str:
    """As TOML writes it; empty where nothing is set."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{hide_passwords(value)}"'
        case timedelta():
            return f'"{spell(int(value.total_seconds()))}"'
        case dict():
            return (
                "{ " + ", ".join(f"{key} = {_written(inner)}" for key, inner in value.items()) + " }" if value else "{}"
            )
        case tuple():
            return "[" + ", ".join(_written(inner) for inner in value) + "]"
        case _:
            return str(value)


def hide_passwords(text: str) -> str:
    """A Postgres address without its password, in either of its spellings.

    >>> hide_passwords("postgresql://fairshare:se:cr@t@db:5432/fairshare?sslpassword=x")
    'postgresql://fairshare:***@db:5432/fairshare?sslpassword=***'
    >>> hide_passwords("host=db password='a b' user=fairshare")
    'host=db password=*** user=fairshare'
    """
    text = re.sub(r"(\w+://[^/?#:@]*):.*@", r"\1:***@", text)
    return re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]*)", r"\1***", text, flags=re.IGNORECASE)


COLUMNS: tuple[Column[Setting], ...] = (
    Column("Setting", lambda one: one.name, "section and name"),
    Column(
        "Value",
        lambda one: one.value,
        "in force, as the settings file writes it",
        elastic=True,
        paint=lambda one: "bold" if one.changed else "",
    ),
    Column("Default", lambda one: one.default, "value where nothing is set", elastic=True, spare=1),
    Column("Variable", lambda one: one.variable, "environment variable that sets it", spare=2),
    Column("About", lambda one: one.about, "what it does", elastic=True),
)


def report(settings: tuple[Setting, ...]) -> Report[Setting]:
    return Report(
        noun="settings",
        columns=COLUMNS,
        rows=settings,
        shown=("Setting", "Value", "Default"),
        script=("Setting", "Value", "Default", "Variable"),
        below=("docs/reference/settings.md says what each one does.",),
    )
