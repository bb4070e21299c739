"""Commits that carry a number: n stands at most once, whoever writes it, and the table knows which.

The intent (n, cut) is in the store before the commit. One Delta commit carries (table id, n); a
second one with the same n is skipped or rejected by Delta. An answer may be lost on the way, so the
table is asked afterwards which commit stands. To give up an open intent, an empty commit takes its
number first (the fence); a late writer of n is then skipped. A predecessor that was taken for dead
may be the one who is first, with a commit or a fence: its successor, who holds the claim, goes by
that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, RefreshError, SetupError
from dynamic_tables.lake.base import Commit, Stamp, WorkArea
from dynamic_tables.model import Intent
from dynamic_tables.refresh.context import Context
from dynamic_tables.refresh.facts import is_ours
from dynamic_tables.refresh.refusals import taken_over
from dynamic_tables.refresh.states import FENCE, is_fence
from dynamic_tables.steps import Step
from dynamic_tables.store import Claim

LOG = logging.getLogger(__name__)


class NumberedCommits:
    """The commits that one claim makes to one table."""

    def __init__(self, context: Context, claim: Claim, reached: Callable[[Step], None]) -> None:
        self._store, self._lake = context.store, context.lake
        self._context = context
        self._claim = claim
        self._writer = f"{context.owner}:{claim.token}"
        self._reached = reached
        self.left_over: str | None = None  # why what was staged for slices is still there

    def commit(
        self,
        definition: Definition,
        intent: Intent,
        write: Callable[[Stamp], None],
        *,
        strategy: str,
        base: int,
    ) -> Commit | None:
        """Write the intent's one commit, or find that a predecessor did. None: a predecessor's
        fence took the number, and the intent is dropped. Raises if neither stands."""
        stamp = self._stamp(intent, strategy, base)
        try:
            with self._lake.commit_lock(definition):
                self._check_may_write(definition, intent)
                self._reached(Step.LOCKED)
                write(stamp)
            self._reached(Step.COMMITTED)
        except (RefreshError, *self._lake.faults) as error:
            commit = self.landed(definition, intent.sequence, base)
            if commit is None:
                return self.give_up(error, definition, intent, base)
        else:
            commit = self.landed(definition, intent.sequence, base)
        found = self._settled(commit, intent, definition)
        if not is_fence(found):
            return found
        self.drop(definition, intent)
        return None

    def is_own(self, commit: Commit) -> bool:
        return commit.stamp is not None and commit.stamp.writer == self._writer

    def _check_may_write(self, definition: Definition, intent: Intent) -> None:
        """Who waited for the lock may have lost the claim. Where the lake excludes two writers from
        each other, the number alone makes the commit unique: a store that does not answer just
        then throws no work away."""
        try:
            self._check_kept(definition, intent)
        except SetupError:
            if self._context.claimant.is_alone_at(definition.location):
                raise

    def _check_kept(self, definition: Definition, intent: Intent) -> None:
        if not self._store.heartbeat(self._claim):
            raise taken_over(definition, f"took over refresh {intent.sequence}")

    def _settled(self, commit: Commit | None, intent: Intent, definition: Definition) -> Commit:
        """The commit that took the number: ours, or a predecessor's, which we are to record. A
        silent skip ends here: who has lost the claim meanwhile records nothing."""
        if commit is not None and self.is_own(commit):
            return commit
        same = commit is not None and commit.stamp and commit.stamp.refresh_id == intent.refresh_id
        if commit is None or not same or not self._store.heartbeat(self._claim):
            raise taken_over(definition, f"took over refresh {intent.sequence}")
        return commit

    def landed(self, definition: Definition, sequence: int, after: int) -> Commit | None:
        """The commit that carries the number, if the table says that it stands."""
        standing = self._lake.standing(definition)
        if standing.sequence < sequence:
            return None
        commits = self._lake.commits(definition, after, standing.version)
        for commit in reversed(commits):  # Delta's compaction after a commit repeats its stamp
            if is_ours(commit, definition) and commit.stamp and commit.stamp.sequence == sequence:
                return commit
        return None

    def fence(
        self, area: WorkArea, definition: Definition, intent: Intent, base: int
    ) -> Commit | None:
        """Take the intent's number with an empty commit, then forget the intent.

        If a predecessor's rows came first, their commit comes back, and the intent stays open. Who
        has lost the claim leaves the number to the successor, who may be about to use it.
        """
        stamp = self._stamp(intent, FENCE, base)
        try:
            with self._lake.commit_lock(definition):
                self._check_kept(definition, intent)
                area.fence(definition, stamp)
        except self._lake.faults:
            commit = self.landed(definition, intent.sequence, base)
            if commit is None:
                raise
        else:
            commit = self.landed(definition, intent.sequence, base)
        found = self._settled(commit, intent, definition)
        if not is_fence(found):
            return found
        self.drop(definition, intent)
        return None

    def drop(self, definition: Definition, intent: Intent) -> None:
        """Forget an intent whose number stands, and what was staged for it, if only in part."""
        self.clear(definition, intent.sequence)
        self._store.drop_intent(self._claim, intent.sequence)

    def clear(self, definition: Definition, up_to: int) -> None:
        """Take away what was staged for refreshes up to this number.

        What cannot be deleted is in nobody's way: it is told, and the next refresh tries again.
        """
        self.left_over = None
        try:
            self._lake.clear_slices(definition, up_to)
        except (DynamicTablesError, *self._lake.faults) as error:
            why = self._told(error, definition).message
            self.left_over = f"what was staged in _slices could not be deleted: {why}"
            LOG.warning("%s: %s", definition.name, self.left_over)

    def _told(self, error: BaseException, definition: Definition) -> DynamicTablesError:
        if isinstance(error, DynamicTablesError):
            return error
        return self._lake.told(error, about=str(definition.name))

    def give_up(
        self, error: BaseException, definition: Definition, intent: Intent, base: int
    ) -> Commit:
        """The write failed and n does not stand: take n away with a fence and raise what happened.

        A predecessor's commit may come before the fence: it comes back, and is to be recorded. If
        even the fence fails, the intent stays open; the next refresh finds and settles it.
        """
        told = self._told(error, definition)
        try:
            label = f"{intent.refresh_id} fence {definition.name}"
            with self._lake.work_area(definition, label) as area:
                late = self.fence(area, definition, intent, base)
        except (*self._lake.faults, DynamicTablesError) as second:
            told.add_note(f"the refresh stays open: {second}")
            late = None
        if late is not None:
            return late
        if self.left_over is not None:
            told.add_note(self.left_over)
        raise told from error

    def _stamp(self, intent: Intent, strategy: str, base: int) -> Stamp:
        return Stamp(
            table_id=intent.table_id,
            refresh_id=intent.refresh_id,
            sequence=intent.sequence,
            cut=intent.cut.as_json(),
            pins=[pin.as_json() for pin in intent.pins],
            fingerprint=intent.fingerprint,
            strategy=strategy,
            base=base,
            writer=self._writer,
        )
