"""Runs Slurm's tools: as a list of words, never through a shell, with a limit on time, and counted."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import stamina

from slurm_fairshare.errors import DateRangeRefused, SlurmError, SlurmRefused, SlurmUnreachable

SETTINGS = ("TZ=UTC", "SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", "LC_ALL=C.UTF-8")
"""What makes the tools print for machines. Given by `env` in front of the tool: a prefix would lose our own."""

KEPT = frozenset({"SLURM_CONF", "SLURM_JWT"})
_TOOLS_OWN = re.compile(r"(SLURM|SQUEUE|SACCT|SACCTMGR|SCONTROL|SCANCEL|SINFO)_")

_UNREACHABLE = re.compile(
    r"unable to contact|connection refused|connect failure|unable to connect|failed to open persistent"
    r"|zero bytes were transmitted|timed out|no route to host|connection reset|problem talking to"
    r"|sending persistmsg|database is busy|rate limit exceeded|munge|authentication credential"
    r"|unable to establish control|unable to establish config|resolve|not running for dbd"
    r"|cannot connect to the docker|no such container|container \S+ is not running|name or service not known",
    re.IGNORECASE,
)
_TOO_WIDE = re.compile(r"too wide of a date range|query result exceeds size limit", re.IGNORECASE)
_DENIED = re.compile(r"permission denied|doesn't have privilege|access denied|invalid user id", re.IGNORECASE)
_IN_USE = re.compile(r"job\(s\) active|jobs? (?:are |is )?(?:still )?(?:running|active)|in use", re.IGNORECASE)
_NO_TOOL = re.compile(r"no such file or directory|executable file not found|command not found", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a tool printed and how it ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """What went wrong in the tool's own words, on one line."""
        lines = [line.strip() for line in (self.stderr or self.stdout).splitlines() if line.strip()]
        return "; ".join(lines)[:500] or f"no words, exit code {self.code}"


class _NoAnswer(SlurmUnreachable):
    """The tool is missing or used up its whole time: asking again at once would only double the wait."""


PATIENCE = 5.0
"""Seconds after which a question that got no answer is not asked again."""

Executor = Callable[..., Answer]
"""Runs these words within so many seconds: `execute(words, seconds)`, or `execute(words, seconds, text)` where the tool
reads standard input. Tests bring their own."""


class Runner:
    """Runs Slurm's tools behind an optional prefix, such as `("ssh", "head1")` or `("docker", "exec", "ctl")`.

    `calls` counts the processes by tool, so that others can show what a tick costs Slurm.
    """

    def __init__(
        self,
        prefix: Sequence[str] = (),
        slurm_conf: str | None = None,
        timeout: float = 30.0,
        attempts: int = 3,
        execute: Executor | None = None,
    ) -> None:
        self.calls: Counter[str] = Counter()
        self._prefix = tuple(prefix)
        self._settings = (*SETTINGS, *((f"SLURM_CONF={slurm_conf}",) if slurm_conf else ()))
        self._timeout = timeout
        self._attempts = attempts
        self._execute = execute or _execute

    def read(self, tool: str, *words: str) -> Answer:
        """Ask a question. Asked again, few times, when nobody answered: a question changes nothing.

        Not where the tool itself has tried for long already (sacct does, for a slurmdbd that is down).
        """
        begun = time.monotonic()

        def again(error: Exception) -> bool:
            soon = time.monotonic() - begun < PATIENCE
            return soon and isinstance(error, SlurmUnreachable) and not isinstance(error, _NoAnswer)

        for attempt in stamina.retry_context(
            on=again, attempts=self._attempts, timeout=self._timeout, wait_initial=0.2, wait_max=2.0
        ):
            with attempt:
                answer = self._run(tool, words)
                # Some tools report a failure and still end with 0. Nothing read must not look like nothing there.
                if answer.code != 0 or (not answer.stdout.strip() and "error" in answer.stderr.lower()):
                    raise error_of(tool, answer)
                return answer
        raise AssertionError("unreachable: stamina returns or raises")  # pragma: no cover

    def write(self, tool: str, *words: str, level: str = "", unchanged: re.Pattern[str] | None = None) -> Answer:
        """Change something, once. `level` is the AdminLevel it takes, for the message if Slurm says no.

        Words that match `unchanged` mean that everything was as wanted already: no error.
        """
        answer = self._run(tool, words)
        said = f"{answer.stdout}\n{answer.stderr}"
        if answer.code != 0 and not (unchanged and unchanged.search(said) and not _DENIED.search(said)):
            raise error_of(tool, answer, " ".join(words), level)
        return answer

    def ask(self, tool: str, *words: str, stdin: str | None = None) -> Answer:
        """What the tool answers, however it ends: the caller knows what a refusal means. Asked once."""
        answer = self._run(tool, words, stdin)
        if answer.code in (126, 127):
            raise error_of(tool, answer)
        return answer

    def _run(self, tool: str, words: Sequence[str], stdin: str | None = None) -> Answer:
        self.calls[tool] += 1
        command = ["env", *self._settings, tool, *words]
        if self._prefix and Path(self._prefix[0]).name == "ssh":
            command = [shlex.join(command)]  # ssh joins its words with blanks and hands them to a shell
        try:
            given = () if stdin is None else (stdin,)
            return self._execute([*self._prefix, *command], self._timeout, *given)
        except subprocess.TimeoutExpired as error:
            heard = _text(error.stdout) + _text(error.stderr)
            said = f' It said: "{heard.strip()[:200]}".' if heard.strip() else ""
            raise _NoAnswer(
                f"{tool} did not finish within {self._timeout:g} s.{said} "
                "See whether slurmctld and slurmdbd answer (scontrol ping, sacctmgr show cluster)"
            ) from error
        except OSError as error:
            raise _NoAnswer(
                f"{(*self._prefix, tool)[0]} cannot be run: {error.strerror}. Install Slurm's client tools on this "
                "host, or set the command prefix to a host that has them"
            ) from error


def error_of(tool: str, answer: Answer, doing: str = "", level: str = "") -> SlurmError:
    """The kind of error a failed call is, with the tool's words and what to do about it."""
    said = f'{tool} {doing[:200]} said "{answer.words}"'.replace("  ", " ")
    everything = f"{answer.stdout}\n{answer.stderr}"
    if _TOO_WIDE.search(everything):
        return DateRangeRefused(f"{said}: ask for a shorter stretch, or raise MaxQueryTimeRange in slurmdbd.conf")
    if answer.code in (126, 127) and _NO_TOOL.search(everything):
        return _NoAnswer(f"{said}: install Slurm's client tools where the command prefix points")
    if _DENIED.search(everything):
        return SlurmRefused(f"{said}: {_remedy(level)}")
    if _IN_USE.search(everything) and re.search(r"\b(?:remove|delete) ", doing):
        return SlurmRefused(
            f"{said}: jobs still use it; run this again when they have left, or move pending ones with "
            "scontrol update JobId=ID QOS=NAME"
        )
    if _UNREACHABLE.search(everything):
        return SlurmUnreachable(f"{said}: start the daemon it needs, or check the network and munge on this host")
    return SlurmRefused(said)


def _remedy(level: str) -> str:
    wanted = level or "Operator"
    return (
        f"this user needs AdminLevel {wanted} or more; an administrator runs "
        f"sacctmgr modify user where name=USER set adminlevel={wanted}"
    )


def _execute(command: Sequence[str], timeout: float, stdin: str = "") -> Answer:
    done = subprocess.run(
        list(command),
        input=stdin.encode(),
        capture_output=True,
        timeout=timeout,
        check=False,
        env={key: value for key, value in os.environ.items() if key in KEPT or not _TOOLS_OWN.match(key)},
    )
    return Answer(done.returncode, _text(done.stdout), _text(done.stderr))


def _text(octets: bytes | str | None) -> str:
    if octets is None or isinstance(octets, str):
        return octets or ""
    return octets.decode("utf-8", "backslashreplace")
