"""Where a table lies: its folder on a disk or in an object store.

The log is read and written by `obstore`, because a commit is a file that is made only if it is not
there yet, which Arrow's file systems cannot do. Rows are Arrow's business, as in executors. Both
take credentials from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import LocalStore, from_url
from pyarrow import Buffer, NativeFile, fs

from dynamic_tables.errors import InvalidInput
from dynamic_tables.lake.local_lock import file_locked
from dynamic_tables.lake.places import local_path
from dynamic_tables.lake.row_groups.writing import file_system
from dynamic_tables.reasons import Reason

LOG = "_delta_log"
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Store:
    """The folder of a table."""

    def __init__(self, location: str) -> None:
        self.location = location
        self.folder: Path | None = local_path(location)
        if self.folder is not None and not (self.folder / LOG).is_dir():
            raise InvalidInput(
                "there is no Delta table here", reason=Reason.UNKNOWN_SOURCE, about=location
            )
        root = str(self.folder) if self.folder is not None else _url(location)
        self.root = root.rstrip("/")  # as Arrow wants it
        self._objects = LocalStore(self.root) if self.folder is not None else from_url(self.root)
        self._files: tuple[fs.FileSystem, str] | None = None

    def log_names(self) -> list[str]:
        """Names in the log's folder."""
        listed = obstore.list_with_delimiter(self._objects, LOG)["objects"]
        return [entry["path"].rpartition("/")[2] for entry in listed]

    def read(self, path: str) -> bytes:
        """A file below the table; FileNotFoundError if there is none."""
        return bytes(obstore.get(self._objects, path).bytes())

    def create(self, path: str, content: bytes) -> bool:
        """Make a file, whole or not at all; False if it is there already."""
        self._forget_sum(path)
        try:
            obstore.put(self._objects, path, content, mode="create")
        except AlreadyExistsError:
            return False
        return True

    @property
    def keep(self) -> Callable[[str, Buffer], None] | None:
        """How a file of rows is stored at once; None: on local disk it grows where it lies.

        Arrow can only end an upload that it began, never give it up: one that failed would lie in
        the store, unseen and paid for. This one takes its pieces back.
        """
        return None if self.folder is not None else self._put

    def _put(self, path: str, content: Buffer) -> None:
        obstore.put(self._objects, path, obstore.Bytes(memoryview(content).cast("B")))

    def _forget_sum(self, path: str) -> None:
        """Hadoop keeps sums of local files beside them; one that was left over would not fit."""
        if self.folder is not None:
            place = self.folder / path
            if not place.exists():
                place.with_name(f".{place.name}.crc").unlink(missing_ok=True)

    def delete(self, path: str) -> None:
        """What is not there, or cannot be deleted, is left to VACUUM."""
        with suppress(OSError, BaseError):
            if self.folder is not None:
                (self.folder / path).unlink()
            else:  # Arrow would leave an empty object for the folder
                obstore.delete(self._objects, path)

    def open(self, path: str) -> NativeFile:
        """A file of rows, by its path as the log has it: below the table, or anywhere."""
        if is_elsewhere(path):
            local = local_path(unquote(path))
            files, place = file_system(str(local) if local is not None else _url(path))
            return files.open_input_file(place)
        files, root = self._file_system()
        return files.open_input_file(f"{root}/{unquote(path)}")

    def open_new(self, path: str) -> NativeFile:
        """A file below the table, by its own name."""
        files, root = self._file_system()
        return files.open_input_file(f"{root}/{path}")

    def _file_system(self) -> tuple[fs.FileSystem, str]:
        if self._files is None:
            self._files = file_system(self.root)
        return self._files

    @contextmanager
    def locked(self, *, wait_s: float) -> Generator[None]:
        """Alone among the processes that commit through us; object stores need no lock."""
        if self.folder is None:
            yield
            return
        with file_locked(self.folder, about=self.location, wait_s=wait_s):
            yield


def is_elsewhere(path: str) -> bool:
    """Whether a path of the log is absolute, as those of shallow clones are.

    >>> is_elsewhere("p=a:b/part-0"), is_elsewhere("file:/t/part-0"), is_elsewhere("/t/part-0")
    (False, True, True)
    """
    return path.startswith("/") or SCHEME.match(path) is not None


def _url(location: str) -> str:
    for spelling in ("s3a://", "s3n://"):
        location = location.replace(spelling, "s3://", 1)
    return location
