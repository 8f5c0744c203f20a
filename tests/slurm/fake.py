"""A runner whose tools answer what a test says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from slurm_fairshare.slurm.run import Answer, Runner

NOW = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)
EPOCH = int(NOW.timestamp())

Reply = Answer | str | Callable[[list[str]], Answer | str]


class Tools:
    """Answers by tool, the next of a list at each call (the last for ever), and remembers every command."""

    def __init__(self, **replies: Reply | list[Reply]) -> None:
        self.commands: list[list[str]] = []
        self._replies = {tool: list(r) if isinstance(r, list) else [r] for tool, r in replies.items()}

    def __call__(self, command: Sequence[str], _timeout: float) -> Answer:
        words = [word for word in command if word != "env" and not word.startswith(("TZ=", "SLURM_", "LC_ALL="))]
        self.commands.append(words)
        replies = self._replies[words[0]]
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        answer = reply(words) if callable(reply) else reply
        return Answer(0, answer, "") if isinstance(answer, str) else answer

    def runner(self, attempts: int = 1) -> Runner:
        return Runner(execute=self, attempts=attempts)


def said(stderr: str, code: int = 1, stdout: str = "") -> Answer:
    return Answer(code, stdout, stderr)
