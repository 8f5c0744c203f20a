"""Values as the text format of Postgres's COPY spells them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

NULL = r"\N"
_SPECIAL = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def clean(text: str) -> str:
    """What Postgres can keep of a text: a NUL and bytes that are no UTF-8 are written out as escapes.

    >>> clean("a\\x00b"), clean("caf\\udce9"), clean("plain")
    ('a\\\\x00b', 'caf\\\\udce9', 'plain')
    """
    if text.isascii() and "\0" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\0", "\\x00")


def spell_text(text: str) -> str:
    """A text, cleaned. Neither control characters nor halves of characters are printable.

    >>> spell_text("plain"), spell_text("a\\tb"), spell_text("a\\x00b")
    ('plain', 'a\\\\tb', 'a\\\\\\\\x00b')
    """
    if text.isprintable() and "\\" not in text:
        return text
    return clean(text).translate(_SPECIAL)


@lru_cache(maxsize=4096)
def _spell_words(words: tuple[str, ...]) -> str:
    """
    >>> _spell_words(("gpu", 'a"b'))
    '{"gpu","a\\\\\\\\"b"}'
    """
    quoted = ['"' + clean(word).replace("\\", r"\\").replace('"', r"\"") + '"' for word in words]
    return spell_text("{" + ",".join(quoted) + "}")


def _spell_length(length: timedelta) -> str:
    """
    >>> _spell_length(timedelta(days=1, seconds=2, microseconds=3))
    '1 day 2.000003 seconds'
    """
    return f"{length.days} day {length.seconds}.{length.microseconds:06} seconds"


_SPELL: Mapping[type, Callable[[Any], str]] = {
    str: spell_text,
    int: str,
    float: repr,
    bool: lambda value: "t" if value else "f",
    type(None): lambda _: NULL,
    datetime: datetime.isoformat,
    timedelta: _spell_length,
    tuple: _spell_words,
}


def spell(value: Any) -> str:
    """One value. A tuple is an array of words."""
    return _SPELL[type(value)](value)


def line(values: Iterable[Any]) -> str:
    """A row as a line.

    >>> line(("n1", 8, True, None, ("gpu",)))
    'n1\\t8\\tt\\t\\\\N\\t{"gpu"}\\n'
    """
    return "\t".join([_SPELL[type(value)](value) for value in values]) + "\n"
