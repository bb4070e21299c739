"""The first start of all downloads Delta's jars; two at once do not hinder each other."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import Queue

import pytest

import dynamic_tables as dt
from dynamic_tables.lake import jars
from dynamic_tables.settings import Settings, load_settings

JAR = "io.delta_delta-spark_4.2_2.13-4.4.0.jar"


def cache(folder: Path) -> Settings:
    return load_settings({"jar_cache": str(folder)}, environment={}, folder=folder)


def download(settings: Settings) -> None:
    """What Spark does with the folder it is given."""
    folder = jars.jar_folder(settings) / "jars"
    folder.mkdir()
    (folder / JAR).touch()


def names(found: list[str]) -> list[str]:
    return [Path(path).name for path in found]


def test_downloaded_once(tmp_path: Path) -> None:
    said: list[str] = []
    with jars.at_hand(cache(tmp_path), said.append) as found:
        assert found == []
        download(cache(tmp_path))
    assert any("downloading Delta Lake" in line for line in said)
    said.clear()
    with jars.at_hand(cache(tmp_path), said.append) as found:
        assert names(found) == [JAR]
    assert said == []


def test_a_second_first_start_waits_and_takes_what_the_first_brought(tmp_path: Path) -> None:
    settings, said, taken = cache(tmp_path), Queue[str](), Queue[list[str]]()

    def second() -> None:
        with jars.at_hand(settings, said.put) as found:
            taken.put(names(found))

    with jars.at_hand(settings, lambda _: None) as found:
        assert found == []
        waiting = threading.Thread(target=second)
        waiting.start()
        assert "waiting" in said.get(timeout=60)
        assert taken.empty()
        download(settings)
    waiting.join()
    assert taken.get() == [JAR]


def test_a_start_that_failed_leaves_the_download_to_the_next(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), jars.at_hand(cache(tmp_path), lambda _: None):
        raise RuntimeError
    with jars.at_hand(cache(tmp_path), lambda _: None) as found:
        assert found == []


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(dt.SetupError) as caught, jars.at_hand(cache(tmp_path / "file"), print):
        pass
    assert caught.value.reason is dt.Reason.NO_PERMISSION
    assert "--jar-cache" in (caught.value.hint or "")
