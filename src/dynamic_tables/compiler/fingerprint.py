"""When are two queries the same? When their words are.

The fingerprint ignores white space, comments and the case of unquoted words. It is made of words,
not of a parsed tree: a tree that printed two different queries alike would let a changed query pass
as unchanged.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from dynamic_tables._tokens import TokenKind, scan

CASE_SETTING = "spark.sql.caseSensitive"


def fingerprint(
    query: str,
    *,
    namespace: tuple[str, str],
    settings: Mapping[str, str],
    columns: Sequence[str],
) -> str:
    """A hash of everything that decides the result besides the data."""
    content = {
        "words": normalised_words(query, keep_case=settings.get(CASE_SETTING) == "true"),
        "namespace": list(namespace),
        "settings": dict(sorted(settings.items())),
        "columns": list(columns),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def normalised_words(query: str, *, keep_case: bool = False) -> list[list[str]]:
    """The query as words that compare equal when only its looks differ.

    >>> normalised_words("SELECT a -- why\\n FROM T") == normalised_words("select A from t")
    True
    >>> normalised_words("SELECT 'a'") == normalised_words("SELECT 'A'")
    False

    After a dot or a colon a word may be the key of a map or of a variant, whose case counts.

    >>> normalised_words("SELECT m.Foo") == normalised_words("SELECT m.foo")
    False
    """
    words, after_access = [], False
    for token in scan(query):
        plain = token.kind is TokenKind.WORD and not after_access and not keep_case
        words.append([token.kind.name, token.value.lower() if plain else token.value])
        after_access = token.kind is TokenKind.SYMBOL and token.value in (".", ":")
    return words
