"""Benchmarks. Each prints `FIGURE name value` lines."""
