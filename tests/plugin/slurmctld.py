"""A stand-in for what slurmctld gives job_submit.lua, as strict as the real one is lax.

The real job_desc logs "unrecognized field" and goes on; here an unknown field raises, so that a misspelt one
cannot hide. Numbers arrive as floats, as lua_pushnumber makes them. Field names: job_submit_lua.c and slurm_lua.c
of 22.05, which 24.11 and 26.05 still have all of.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from slurm_fairshare.slurm.plugin import PluginSettings, render

NO_VAL, NO_VAL16, NO_VAL8, INFINITE = 0xFFFFFFFE, 0xFFFE, 0xFE, 0xFFFFFFFF
SUCCESS, ERROR = 0, -1
ACCOUNTING_POLICY, INVALID_TIME_LIMIT, INVALID_QOS, NOT_SUPPORTED = 2050, 2051, 2066, 2018
PENDING, RUNNING = 0, 1

TEXT = frozenset(
    [
        "account",
        "admin_comment",
        "array_inx",
        "comment",
        "default_account",
        "default_qos",
        "features",
        "gres",
        "name",
        "partition",
        "prefer",
        "qos",
        "reservation",
        "script",
        "tres_per_job",
        "tres_per_node",
        "tres_per_socket",
        "tres_per_task",
        "user_name",
        "wckey",
    ]
)
NUMBERS = {
    "het_job_offset": NO_VAL,
    "max_nodes": NO_VAL,
    "min_nodes": NO_VAL,
    "nice": NO_VAL,
    "ntasks_per_gpu": NO_VAL16,
    "ntasks_per_node": NO_VAL16,
    "ntasks_per_tres": NO_VAL16,
    "num_tasks": NO_VAL,
    "priority": NO_VAL,
    "requeue": NO_VAL16,
    "shared": NO_VAL16,
    "site_factor": NO_VAL,
    "sockets_per_node": NO_VAL16,
    "time_limit": NO_VAL,
    "time_min": NO_VAL,
    "user_id": 2001,
}
READ_ONLY = frozenset({"default_account", "default_qos", "het_job_offset", "user_id", "user_name"})
RECORD = {
    "account": "vision",
    "admin_comment": None,
    "comment": None,
    "job_id": 7,
    "job_state": PENDING,
    "partition": "gpu",
    "qos": "fs-unallocated",
    "time_limit": 60,
    "time_min": 0,
    "tres_fmt_req_str": "cpu=1,node=1,billing=1,gres/gpu=1,gres/gpu:h100=1",
    "user_id": 2001,
}
PARTITION = {"default_time": NO_VAL, "flag_default": 0, "max_share": 1, "max_time": INFINITE}

_PROXIES = """
function proxy(values, text, numbers, read_only, written)
  local known = function(key)
    if not text[key] and numbers[key] == nil then error("unrecognized field " .. tostring(key), 3) end
  end
  return setmetatable({}, {
    __index = function(_, key) known(key) return values[key] end,
    __newindex = function(_, key, value)
      known(key)
      if read_only[key] then error("read-only field " .. key, 2) end
      if type(value) ~= (text[key] and "string" or "number") then error("wrong type for " .. key, 2) end
      values[key] = value
      written[key] = value
    end,
  })
end
function record(values, known)
  return setmetatable({}, {
    __index = function(_, key)
      if not known[key] then error("unrecognized field " .. tostring(key), 2) end
      return values[key]
    end,
    __newindex = function() error("a job record cannot be written", 2) end,
  })
end
local unpack = table.unpack or unpack
function output(sink) return function(...) sink(string.format(unpack({...}))) end end
"""


@dataclass
class Outcome:
    """What the plugin returned, told the user, told the log, and wrote."""

    code: int
    told: list[str]
    logged: list[str]
    written: dict[str, Any]

    @property
    def text(self) -> str:
        return "\n".join(self.told)

    @property
    def pin(self) -> str:
        return str(self.written["admin_comment"])


@dataclass
class Slurmctld:
    """One Lua interpreter (`lua51`, `lua53`, `lua54`) with the plugin loaded."""

    lua: str
    settings: PluginSettings = field(default_factory=PluginSettings)
    names_all_codes: bool = True
    text: str | None = None
    partitions: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"gpu": {"flag_default": 1}})

    def __post_init__(self) -> None:
        self._told: list[str] = []
        self._logged: list[str] = []
        self._runtime = importlib.import_module(f"lupa.{self.lua}").LuaRuntime()
        self._runtime.execute(_PROXIES)
        self._runtime.globals().slurm = self._table(self._slurm())
        self._runtime.execute(self.text or render(self.settings))

    def _slurm(self) -> dict[str, Any]:
        output = self._runtime.globals().output
        names: dict[str, Any] = {
            "SUCCESS": SUCCESS,
            "ERROR": ERROR,
            "NO_VAL": NO_VAL,
            "NO_VAL16": NO_VAL16,
            "NO_VAL8": NO_VAL8,
            "INFINITE": INFINITE,
            "JOB_SHARED_NONE": 0,
            "ESLURM_ACCOUNTING_POLICY": ACCOUNTING_POLICY,
            "ESLURM_INVALID_TIME_LIMIT": INVALID_TIME_LIMIT,
            "log_user": output(self._told.append),
            "log_error": output(self._logged.append),
        }
        if self.names_all_codes:
            names |= {"ESLURM_INVALID_QOS": INVALID_QOS, "ESLURM_NOT_SUPPORTED": NOT_SUPPORTED}
        return names

    def _table(self, values: Mapping[str, Any]) -> Any:
        return self._runtime.table_from(
            {key: float(value) if type(value) is int else value for key, value in values.items()}
        )

    def _job(self, values: Mapping[str, Any], written: Any) -> Any:
        return self._runtime.globals().proxy(
            self._table({**NUMBERS, **{key: value for key, value in values.items() if value is not None}}),
            self._table(dict.fromkeys(TEXT, True)),
            self._table(NUMBERS),
            self._table(dict.fromkeys(READ_ONLY, True)),
            written,
        )

    def _part_list(self) -> Any:
        parts = {name: self._table({**PARTITION, **part}) for name, part in self.partitions.items()}
        return self._runtime.table_from(parts)

    def _outcome(self, code: Any, written: Any) -> Outcome:
        told, logged = list(self._told), list(self._logged)
        self._told.clear()
        self._logged.clear()
        return Outcome(int(code), told, logged, dict(written.items()))

    def submit(self, comment: str | None = None, **fields: Any) -> Outcome:
        """A batch job of alice's in her default account, which has a budget, unless the fields say otherwise."""
        account = {"default_account": "vision", "default_qos": "fs-unallocated"}
        values = {"script": "#!/bin/sh", "comment": comment, **account, **fields}
        written = self._runtime.table()
        job = self._job(values, written)
        code = self._runtime.globals().slurm_job_submit(job, self._part_list(), 2001.0)
        return self._outcome(code, written)

    def modify(self, record: Mapping[str, Any], uid: int = 2001, **fields: Any) -> Outcome:
        """`scontrol update` of these fields on a job with this record."""
        written = self._runtime.table()
        values = {key: value for key, value in {**RECORD, **record}.items() if value is not None}
        held = self._runtime.globals().record(self._table(values), self._table(dict.fromkeys(RECORD, True)))
        job = self._job(fields, written)
        code = self._runtime.globals().slurm_job_modify(job, held, self._part_list(), float(uid))
        return self._outcome(code, written)

    def break_output(self) -> None:
        """From now on telling the user anything fails."""
        self._runtime.execute('slurm.log_user = function() error("no output") end')
