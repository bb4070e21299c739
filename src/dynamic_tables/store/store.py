"""`Store`: the records of all dynamic tables. Every method is one transaction."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import Engine, delete
from sqlalchemy.exc import IntegrityError

from dynamic_tables.definition import Definition
from dynamic_tables.errors import Held, InvalidInput
from dynamic_tables.model import Build, Intent, RefreshRecord, Status, TableState
from dynamic_tables.reasons import Reason
from dynamic_tables.settings import HISTORY_DAYS
from dynamic_tables.store import (
    claims,
    dropping,
    queue,
    refreshes,
    schema,
    subtasks,
    tables,
    workers,
)
from dynamic_tables.store.dropping import Dropped
from dynamic_tables.store.engine import masked, now, open_engine, reading, upsert, writing
from dynamic_tables.store.forgetting import KEPT_BUILDS, forget_dropped
from dynamic_tables.store.migrations import migrate
from dynamic_tables.store.records import (
    Claim,
    Claimant,
    PendingRefresh,
    Registered,
    SliceResult,
    Subtask,
    WantedRefresh,
    WantedSubtask,
    Worker,
    registry_row,
)
from dynamic_tables.store.refreshes import Failures
from dynamic_tables.store.server import Server, look
from dynamic_tables.store.tables import Rows
from dynamic_tables.store.waking import Waker, waker


def open_store(url: str | Path, *, history_days: int = HISTORY_DAYS) -> Store:
    """Open the store at a path, `sqlite:///path` or `postgresql://…`; make or migrate it first."""
    engine = open_engine(url)
    migrate(engine)
    return Store(engine, history_days)


class Store:
    """The store; threads and processes may share it, each process with a `Store` of its own."""

    def __init__(self, engine: Engine, history_days: int = HISTORY_DAYS) -> None:
        self._engine = engine
        self._history_days = history_days  # so long history is kept, at least

    def __repr__(self) -> str:
        return f"Store({self.url!r})"

    @property
    def url(self) -> str:
        """Where it is, without passwords."""
        return masked(self._engine.url)

    def close(self) -> None:
        self._engine.dispose()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Definitions.

    def create_table(self, definition: Definition) -> None:
        """Keep a new definition; InvalidInput ALREADY_EXISTS if the name is taken."""
        try:
            with writing(self._engine) as connection:
                tables.create(connection, definition)
        except IntegrityError:
            raise self._why_not(definition) from None

    def create_claimed(self, definition: Definition, refresh_id: str, claimant: Claimant) -> Claim:
        """The same, with a claim on the new table: others find it held from the first moment."""
        try:
            with writing(self._engine) as connection:
                tables.create(connection, definition)
                return claims.take(connection, definition.table_id, refresh_id, claimant)
        except IntegrityError:
            raise self._why_not(definition) from None

    def update_definition(self, claim: Claim, definition: Definition) -> None:
        """Replace it by a definition of a larger revision; Held TAKEN_OVER, and nothing is
        written, if another was first or the claim has been replaced."""
        try:
            with writing(self._engine) as connection:
                tables.lock_with_parents(connection, definition)
                refreshes.lock_claimed(connection, claim, definition.table_id)
                tables.change(connection, definition)
        except IntegrityError:
            raise self._why_not(definition) from None

    def _why_not(self, definition: Definition) -> Exception:
        with reading(self._engine) as connection:
            return tables.why_not(connection, definition)

    def delete_tables(self, table_ids: Collection[str], held: Collection[Claim] = ()) -> Dropped:
        """Forget all about the tables but their history; what was forgotten comes back.

        Deletes none of them if one cannot go: Refused HAS_CHILDREN if tables that stay read it,
        Held TAKEN_OVER if a claim that was `held` has been replaced.
        """
        with writing(self._engine) as connection:
            names = dropping.lock(connection, table_ids)
            for claim in held:
                claims.check(connection, claim, names[claim.table_id])
            dropped = dropping.drop(connection, names)
            forget_dropped(connection, self._history_days)
            return dropped

    def put_back(self, dropped: Dropped, table_ids: Collection[str]) -> None:
        """Let these stand as they were; InvalidInput if something new is in their way."""
        try:
            with writing(self._engine) as connection:
                dropping.put_back(connection, dropped, table_ids)
        except IntegrityError:
            raise InvalidInput(
                "their names were taken meanwhile", reason=Reason.ALREADY_EXISTS
            ) from None

    def tables(self) -> list[TableState]:
        """All tables, by name."""
        with reading(self._engine) as connection:
            return tables.everything(connection)

    def table(self, name_key: str) -> TableState | None:
        """The table whose `TableName.key` this is."""
        with reading(self._engine) as connection:
            return tables.by_key(connection, name_key)

    def table_by_id(self, table_id: str) -> TableState | None:
        with reading(self._engine) as connection:
            return tables.by_id(connection, table_id)

    def set_status(self, table_id: str, status: Status, because: str | None = None) -> None:
        """Suspend, or resume and forget the failures."""
        with writing(self._engine) as connection:
            tables.set_status(connection, table_id, status, because)

    def saw(
        self,
        behind: Mapping[str, datetime | None],
        refreshed: Mapping[str, datetime | None],
    ) -> None:
        """Since when each table has been behind its base tables (None: it is not), as it was
        found to stand with the last refresh that is told."""
        with writing(self._engine) as connection:
            tables.saw(connection, behind, refreshed)

    # Claims.

    def claim(
        self,
        table_id: str,
        refresh_id: str,
        claimant: Claimant,
        is_owner_dead: Callable[[str, int], bool] | None = None,
    ) -> Claim:
        """Take the table, or raise Held.

        A claim is replaced if it has expired, or if its owner is on this host and
        `is_owner_dead(host, pid)`.
        """
        with writing(self._engine) as connection:
            return claims.take(connection, table_id, refresh_id, claimant, is_owner_dead)

    def heartbeat(self, claim: Claim | Subtask) -> bool:
        """Keep the claim for as long again as it was taken; False if it is lost."""
        with writing(self._engine) as connection:
            if isinstance(claim, Subtask):
                return subtasks.beat(connection, claim)
            return claims.beat(connection, claim)

    def release(self, claim: Claim) -> bool:
        """Give the claim back; False if it was lost already."""
        with writing(self._engine) as connection:
            return claims.release(connection, claim)

    def holder(self, table_id: str) -> Claim | None:
        """The claim that would refuse others now."""
        with reading(self._engine) as connection:
            return claims.holder(connection, table_id)

    def claims(self) -> list[Claim]:
        """All claims, those that have expired too."""
        with reading(self._engine) as connection:
            return claims.everything(connection)

    # The queue.

    def request(self, *wanted: WantedRefresh) -> None:
        """Ask for refreshes, all or none; requests for one table melt together."""
        with writing(self._engine) as connection:
            queue.request(connection, wanted)

    def claim_next(self, claimant: Claimant) -> tuple[Claim, PendingRefresh] | None:
        """The first request that is free, with a claim on its table; None: there is none."""
        while True:
            try:
                with writing(self._engine) as connection:
                    return queue.claim_next(connection, claimant)
            except Held:  # somebody was faster at this table: look for another one
                continue

    def finish(self, claim: Claim, done: PendingRefresh) -> bool:
        """End the request and give the claim back; False if the claim was lost."""
        with writing(self._engine) as connection:
            return queue.finish(connection, claim, done)

    def hand_back(self, claim: Claim, after_s: float = 0.0) -> bool:
        """Leave the request to others, not before so many seconds, and give the claim back; False
        if the claim was lost."""
        with writing(self._engine) as connection:
            return queue.hand_back(connection, claim, after_s)

    def withdraw(self, claim: Claim, table_ids: Sequence[str]) -> set[str]:
        """Take back requests of the claim's refresh that nobody has begun; none if it was lost."""
        with writing(self._engine) as connection:
            return queue.withdraw(connection, claim, table_ids)

    def pending(self) -> list[PendingRefresh]:
        """The queue, first things first; those under way too."""
        with reading(self._engine) as connection:
            return queue.everything(connection)

    def left_open(self, status: Status = Status.ACTIVE) -> list[Intent]:
        """Refreshes that have begun, that nobody is at, and that nobody has asked for."""
        with reading(self._engine) as connection:
            return queue.left_open(connection, status)

    # Slices.

    def open_slices(
        self,
        claim: Claim,
        sequence: int,
        slicing: Mapping[str, Any],
        wanted: Sequence[WantedSubtask],
    ) -> None:
        """Share the open intent among workers; Held TAKEN_OVER if the claim was lost."""
        with writing(self._engine) as connection:
            subtasks.create(connection, claim, sequence, slicing, wanted)

    def look_at_slices(self, claim: Claim, sequence: int) -> list[Subtask]:
        """How far they are, written down with the claim; Held TAKEN_OVER if it was lost."""
        with writing(self._engine) as connection:
            return subtasks.look(connection, claim, sequence)

    def claim_subtask(self, claimant: Claimant, table_id: str | None = None) -> Subtask | None:
        """A slice that nobody computes, or one whose worker is slow; None: there is none.

        It is `lost` if its worker's claim had expired."""
        try:
            with writing(self._engine) as connection:
                return subtasks.take(connection, claimant, table_id)
        except IntegrityError:  # two went to the help of one slow worker
            return None

    def complete_subtask(self, subtask: Subtask, result: SliceResult) -> bool:
        """Tell where its rows are; False if the claim was lost or another was first."""
        with writing(self._engine) as connection:
            return subtasks.complete(connection, subtask, result)

    def fail_subtask(self, subtask: Subtask, reason: str, error: str, *, final: bool) -> bool:
        """Let it be tried again, unless `final` or too often; False if the claim was lost."""
        with writing(self._engine) as connection:
            return subtasks.fail(connection, subtask, reason, error, final=final)

    def subtasks(self, table_id: str | None = None) -> list[Subtask]:
        """The slices of one table, or all, the oldest first."""
        with reading(self._engine) as connection:
            return subtasks.everything(connection, table_id)

    # Workers.

    def idle_workers(self, but: str) -> int:
        """How many workers have nothing to do, besides this one."""
        with reading(self._engine) as connection:
            return workers.idle(connection, but)

    def enter(self, claimant: Claimant) -> None:
        """Count as a worker, until the heartbeat stops; old history of dropped tables is swept."""
        with writing(self._engine) as connection:
            forget_dropped(connection, self._history_days)
            workers.enter(connection, claimant)

    def stay(self, claimant: Claimant, doing: str | None) -> bool:
        """A worker's heartbeat; False if it was taken for gone meanwhile, and entered again."""
        with writing(self._engine) as connection:
            if workers.beat(connection, claimant, doing):
                return True
            workers.enter(connection, claimant)
            return False

    def leave(self, owner: str) -> None:
        with writing(self._engine) as connection:
            workers.leave(connection, owner)

    def workers(self) -> list[Worker]:
        """Those alive, the longest there first."""
        with reading(self._engine) as connection:
            return workers.alive(connection)

    def leads(self, owner: str) -> bool:
        """Whether this worker decides what is due."""
        with reading(self._engine) as connection:
            return workers.leads(connection, owner)

    def server(self) -> Server:
        """What database this is, and which rights are missing there."""
        with reading(self._engine) as connection:
            return look(connection)

    def now(self) -> datetime:
        """The database's clock, by which everything here is measured."""
        with reading(self._engine) as connection:
            return now(connection)

    def waker(self) -> Waker:
        """A way to sleep until there may be something to do."""
        return waker(self._engine)

    # Refreshes.

    def open_intent(self, claim: Claim, intent: Intent) -> Intent:
        """Write the intent before anything is done; the same one found open comes back."""
        with writing(self._engine) as connection:
            return refreshes.open_intent(connection, claim, intent)

    def intent(self, table_id: str) -> Intent | None:
        with reading(self._engine) as connection:
            return refreshes.open_one(connection, table_id)

    def drop_intent(self, claim: Claim, sequence: int) -> bool:
        """Abandon the intent, after the fence is committed; False if it was closed already."""
        with writing(self._engine) as connection:
            return refreshes.drop_intent(connection, claim, sequence)

    def record(
        self,
        claim: Claim | None,
        record: RefreshRecord,
        build: Build | None,
        *,
        close_intent: int | None,
        failures: Failures,
        suspend_at: int | None = None,
        read: TableState | None = None,
    ) -> int:
        """Write history, build, sources; close the intent; return the failures in a row, so many
        of which as `suspend_at` suspend the table.

        What is too old is forgotten (see `forgetting`).
        Raises Held TAKEN_OVER, and writes nothing, if the claim has been replaced. Without a claim,
        history alone is written if anything happened to the table since it was `read`.
        """
        with writing(self._engine) as connection:
            return refreshes.record(
                connection,
                claim,
                record,
                build,
                close_intent=close_intent,
                failures=failures,
                history_days=self._history_days,
                suspend_at=suspend_at,
                read=read,
            )

    def adopt_build(
        self, build: Build, *, claim: Claim | None = None, refresh_id: str | None = None
    ) -> bool:
        """Let a build stand that only the lake knew, and close its intent; False if known."""
        with writing(self._engine) as connection:
            return refreshes.adopt(connection, build, claim=claim, refresh_id=refresh_id)

    def builds(self, table_id: str, limit: int = KEPT_BUILDS) -> list[Build]:
        """The recorded states of the table that are kept, newest first."""
        with reading(self._engine) as connection:
            return refreshes.builds(connection, table_id, limit)

    def history(self, table_id: str | None = None, limit: int = 50) -> list[RefreshRecord]:
        """What was done to one table or to all, as recorded, newest first; dropped ones, too."""
        with reading(self._engine) as connection:
            return refreshes.history(connection, table_id, limit)

    def late(
        self, table_id: str, since: datetime, target_s: float
    ) -> list[tuple[datetime, datetime]]:
        """From when to when a table was later than its target, until refreshes that began since
        then ended that."""
        with reading(self._engine) as connection:
            return refreshes.late(connection, table_id, since, target_s)

    # What people query, and the embedded catalog.

    def read_rows(self, table_name: str) -> Rows:
        """A table of the store: ((column, Spark type), …) and rows of plain values."""
        with reading(self._engine) as connection:
            return tables.rows_of(connection, table_name)

    def registry_put(self, entry: Registered) -> None:
        """Keep the object; one of the same name is replaced."""
        with writing(self._engine) as connection:
            upsert(connection, schema.registry, registry_row(entry))

    def registry_delete(self, name_key: str) -> bool:
        with writing(self._engine) as connection:
            mine = schema.registry.c.name_key == name_key
            return connection.execute(delete(schema.registry).where(mine)).rowcount == 1

    def registry_all(self) -> list[Registered]:
        """Everything registered, schemas first."""
        with reading(self._engine) as connection:
            return tables.registered(connection)
