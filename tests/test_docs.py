"""The pages: they build without a warning, and every command shown in them exists as it is written."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from slurm_fairshare.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown(page: Path) -> Iterator[str]:
    """The commands of a page: in code blocks and between backticks, up to what is no longer part of them."""
    if "reference/commands" in str(page):
        return
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```.*?```", text, re.DOTALL)
    code = [line for block in blocks for line in block.splitlines()[1:-1]]
    code += [line for line in text.splitlines() if line.startswith("    ")]
    code += re.findall(r"`((?:slurm-fairshare|sfair) [^`]+)`", text)
    for line in code:
        stripped = line.strip().removeprefix("$ ")
        match = re.match(r"(?:docker exec (?:-\S+ )*\S+ )?((?:slurm-fairshare|sfair) .*)", stripped)
        if match:
            yield re.split(r"\s{2,}|\s+[#|<>&;]|$", match.group(1), maxsplit=1)[0].strip()


CASES = sorted({(str(page.relative_to(ROOT)), command) for page in PAGES for command in shown(page)})


@pytest.mark.parametrize(("page", "command"), CASES, ids=[f"{page}: {command}" for page, command in CASES])
def test_a_command_shown_in_a_page_exists_as_it_is_written(page: str, command: str) -> None:
    words = shlex.split(command.replace("...", "").replace("[", "").replace("]", ""))[1:]
    at: click.Command = main
    context = click.Context(main, info_name="slurm-fairshare")
    while isinstance(at, click.Group) and words and not words[0].startswith("-"):
        name, found, rest = at.resolve_command(context, words)
        assert found is not None, f"{page}: there is no command {words[0]}"
        context = click.Context(found, info_name=name, parent=context)
        at, words = found, list(rest)
    known = {option for parameter in at.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= set(at.get_help_option_names(context))
    used = [word.split("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    assert [word for word in used if word not in known] == [], f"{page}: {command}: options {sorted(known)}"


def test_there_are_commands_to_check() -> None:
    assert len(CASES) > 20


def test_the_pages_build_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(ROOT / "docs"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_relative_link_leads_somewhere() -> None:
    broken = []
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                broken.append(f"{page.relative_to(ROOT)} -> {target}")
    assert broken == []
