"""Sphinx for these pages: `make docs`."""

from slurm_fairshare import __version__

project = "slurm-fairshare"
author = "the slurm-fairshare authors"
copyright = "2026, the slurm-fairshare authors"  # noqa: A001  Sphinx wants this name
release = __version__

extensions = ["myst_parser"]
myst_heading_anchors = 3
myst_enable_extensions = ["deflist", "colon_fence"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"slurm-fairshare {release}"
