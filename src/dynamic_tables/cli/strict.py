"""Values as strict JSON has them: any parser reads what `--json` prints."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Mapping
from typing import Any


def strict_json(value: Any, *, indent: int | None = 2) -> str:
    """The document, without `indent` in one line; what JSON has no word for is a string.

    >>> print(strict_json({"a": [float("nan"), float("-inf")], "b": b"ab"}).replace("\\n", ""))
    {  "a": [    "NaN",    "-Infinity"  ],  "b": "YWI="}
    """
    return json.dumps(
        _plain(value), indent=indent, ensure_ascii=False, default=str, allow_nan=False
    )


def _plain(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes() | bytearray() | memoryview():
            return b64encode(value).decode()
        case Mapping():
            return {str(_plain(key)): _plain(below) for key, below in value.items()}
        case list() | tuple():
            return [_plain(below) for below in value]
    return value
