"""Kinds of jobs that wait differently: debug, small, medium, large, and unallocated work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """In the order in which reports show them."""

    DEBUG = "debug"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    UNALLOCATED = "unallocated"


@dataclass(frozen=True, slots=True)
class Classes:
    """Where one kind ends and the next begins: minimum runtime in seconds, GPUs."""

    debug: int = 900
    debug_gpus: int = 8
    small: int = 8
    medium: int = 64

    def kind(self, gpus: int, min_runtime: int, *, charged: bool) -> Kind:
        """What a job is by its size and its declared minimum runtime.

        >>> [Classes().kind(n, 3600, charged=True).value for n in (8, 9, 64, 65)]
        ['small', 'medium', 'medium', 'large']
        >>> Classes().kind(2, 900, charged=True).value, Classes().kind(2, 0, charged=False).value
        ('debug', 'unallocated')
        """
        if not charged:
            return Kind.UNALLOCATED
        if min_runtime <= self.debug and gpus <= self.debug_gpus:
            return Kind.DEBUG
        if gpus <= self.small:
            return Kind.SMALL
        return Kind.MEDIUM if gpus <= self.medium else Kind.LARGE

    def about(self, kind: Kind) -> str:
        """The definition in few words."""
        match kind:
            case Kind.DEBUG:
                return f"minimum runtime up to {self.debug // 60}m, up to {self.debug_gpus} GPUs"
            case Kind.SMALL:
                return f"up to {self.small} GPUs"
            case Kind.MEDIUM:
                return f"{self.small + 1} to {self.medium} GPUs"
            case Kind.LARGE:
                return f"more than {self.medium} GPUs"
            case Kind.UNALLOCATED:
                return "free and unprotected, of any size"
