"""Which files differ between two versions, by the actions of the commits between them."""

from __future__ import annotations

from typing import Any

from dynamic_tables.lake.differing import Differing


def add(path: str, vector: str | None = None, *, changes: bool = True) -> dict[str, Any]:
    return {"add": _file(path, vector, changes=changes)}


def remove(path: str, vector: str | None = None, *, changes: bool = True) -> dict[str, Any]:
    return {"remove": _file(path, vector, changes=changes)}


def _file(path: str, vector: str | None, *, changes: bool) -> dict[str, Any]:
    described = {"storageType": "i", "pathOrInlineDv": vector} if vector else None
    return {"path": path, "dataChange": changes, "size": 1, "deletionVector": described}


def between(*commits: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    found = Differing()
    for commit in commits:
        found.follow([{"commitInfo": {}}, *commit])
    return _said(found.went), _said(found.came)


def _said(files: dict[tuple[Any, ...], dict[str, Any]]) -> list[str]:
    return sorted(" ".join(filter(None, map(str, key[:3:2]))).replace(" None", "") for key in files)


def test_what_came_and_went_is_not_read() -> None:
    assert between([add("a")], [remove("a"), add("b")], [add("c")]) == ([], ["b", "c"])


def test_a_file_whose_rows_are_marked_differs() -> None:
    assert between([remove("a"), add("a", "v1")], [remove("a", "v1"), add("a", "v2")]) == (
        ["a"],
        ["a v2"],
    )


def test_compaction_is_followed() -> None:
    """What was compacted is the same rows elsewhere; a later change is against those."""
    compacted = [remove("a", changes=False), remove("b", changes=False), add("ab", changes=False)]
    assert between([add("b")], compacted) == (["a"], ["ab"])
    assert between([add("b")], compacted, [remove("ab"), add("c")]) == (["a"], ["c"])


def test_a_file_that_is_named_again_did_not_come() -> None:
    assert between([add("a", changes=False)]) == ([], [])


def test_a_file_that_is_restored_did_not_go() -> None:
    assert between([remove("a"), add("b")], [remove("b"), add("a")]) == ([], [])


def test_rows_that_are_not_told_are_taken_for_as_dense_as_the_others() -> None:
    found = Differing()
    came = {"path": "b", "dataChange": True, "size": 100, "stats": '{"numRecords": 10}'}
    went = {"path": "a", "dataChange": True, "size": 200}
    found.follow([{"remove": went}, {"add": came}])
    assert (found.bytes, found.rows) == (300, 30)
    found.follow([{"remove": came}])
    assert (found.bytes, found.rows) == (200, None)
