"""The loop that keeps tables fresh: look, ask for what is due, take from the queue, refresh.

Any number of workers share one store. The one that has been there longest looks at the base tables
and queues up what is due, all of it at one cut; every worker takes tables from the queue, and if
there are none, slices of large refreshes that others coordinate (see `refresh.sharing`). Workers
may come, go, stop and die at any time: what they were at is free again when their claim expires,
and is completed under the same number (see `refresh.numbered`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace

from dynamic_tables.asking import RECOVERY, Asking
from dynamic_tables.errors import DynamicTablesError, Refused
from dynamic_tables.graph import Graph
from dynamic_tables.model import Action, Outcome, RefreshRecord, TableState
from dynamic_tables.reasons import NOT_ABOUT_THE_TABLE, Reason
from dynamic_tables.refresh.claims import BEATS_PER_EXPIRY, Heartbeats, release_dead
from dynamic_tables.refresh.context import Context, SliceNews
from dynamic_tables.refresh.failures import record_failure
from dynamic_tables.refresh.refusals import defect, engine_gone, sentence, upstream_failed
from dynamic_tables.refresh.run import GraphRefresh, Request
from dynamic_tables.refresh.subtasks import carry_out
from dynamic_tables.schedule import Pace, retry_after
from dynamic_tables.steps import Step, reached
from dynamic_tables.store import Claim, PendingRefresh

GIVEN_BACK = frozenset({Reason.INTERRUPTED, Reason.STORE_BROKEN, Reason.ENGINE_GONE})  # to others


class Worker:
    """One process at work; `slots` tables at a time."""

    def __init__(
        self,
        context: Context,
        *,
        slots: int,
        say: Callable[[str], None],
        tell: Callable[[RefreshRecord], None] = lambda _record: None,
        hear: Callable[[SliceNews], None] = lambda _news: None,
    ) -> None:
        context = replace(context, tell=hear, completed=tell)
        self._context, self._store = context, context.store
        self._pace = Pace.of(context.settings)
        self._asking = Asking(context, self._pace)
        self._slots, self._say, self._tell = slots, say, tell
        self._hearts = Heartbeats(context)
        self._stop = threading.Event()
        self._work = threading.Condition()  # there may be something in the queue
        self._calls = 0  # how often that was said
        self._doing: dict[int, str] = {}  # names of the tables under way, by token
        self._looks_since: float | None = None  # a look at the base tables may hang
        self._looks = True  # at the base tables, whenever it leads
        self._ended_by: DynamicTablesError | None = None  # a dead engine, or another driver

    # The loop

    def run(self) -> None:
        """Work until `stop`; what is under way then is finished first."""
        waker = self._store.waker()
        pool = ThreadPoolExecutor(self._slots, thread_name_prefix="slot")
        with self._counted(), self._hearts.beating(), pool:
            slots = [pool.submit(self._slot) for _ in range(self._slots)]
            try:
                while not self._stop.is_set():
                    self._surviving(self._turn)
                    self._wake_slots()
                    waker.sleep(self._pace.poll_s, self._stop)
            finally:
                self.stop()
                waker.close()
                self._say_ending()
                self._surviving(self._let_others_look)
        for slot in slots:
            slot.result()  # raises what ended it, if it was a defect
        self._tell_end()

    def _say_ending(self) -> None:
        doing = self._doing_now()
        left = f"{doing} is finished or handed back first" if doing else "nothing is under way"
        self._say(f"ending; {left}")

    def stop(self) -> None:
        """Take nothing new."""
        self._stop.set()
        self._wake_slots()

    def drain(self) -> list[RefreshRecord]:
        """Refresh what is due now, in this thread, and return."""
        with self._counted(), self._hearts.beating():
            self.ask()
            self._looks = False
            self._let_others_look()
            done: list[RefreshRecord] = []
            tried: set[int] = set()  # what was handed back is left to later ones
            while not self._stop.is_set() and (found := self._take()) is not None:
                claim, wanted = found
                if wanted.request_no in tried:
                    self._store.hand_back(claim)
                    break
                tried.add(wanted.request_no)
                done += self._execute(claim, wanted)
        self._tell_end()
        return done

    def _check_engine(self) -> None:
        """Without an engine everything fails, and fast: take nothing more, others can do it."""
        if not self._context.lake.is_alive():
            self._ended_by = engine_gone("worker")
            self.stop()

    def _tell_end(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    def _let_others_look(self) -> None:
        """Who ends when its tables are through looks no more: to the end of the row."""
        me = self._context.claimant
        if (self._stop.is_set() or not self._looks) and self._store.leads(me.owner):
            self._store.enter(me)

    def _turn(self) -> None:
        release_dead(self._context)
        me = self._context.claimant
        if not self._store.leads(me.owner):
            return
        self._looks_since = time.monotonic()
        try:
            self.ask()
        except BaseException:  # whatever it was, another may be able to look
            self._store.enter(me)  # at the end of the row
            raise
        finally:
            self._looks_since = None

    def _slot(self) -> None:
        try:
            while not self._stop.is_set():
                heard = self._calls
                if not self._surviving(self._once):
                    self._rest(heard)
        finally:
            self.stop()  # a defect in one slot ends the worker, loudly

    def _rest(self, heard: int) -> None:
        """Unless somebody called while this slot was looking: it may have looked too early."""
        with self._work:
            if not self._stop.is_set() and self._calls == heard:
                self._work.wait(self._pace.poll_s)

    def _once(self) -> bool:
        """One table from the queue, else one slice of a refresh that another worker coordinates;
        False if there is none, or others had better do it."""
        found = self._take()
        if found is None:
            return self._compute()
        records = self._execute(*found)
        return not any(record.reason in GIVEN_BACK for record in records)

    def _compute(self) -> bool:
        subtask = self._store.claim_subtask(self._context.claimant)
        if subtask is None:
            return False
        assert subtask.token is not None
        self._doing[subtask.token] = f"{subtask.dynamic_table} (slice {subtask.slice_no})"
        try:
            with self._hearts.kept(subtask):
                counts = carry_out(self._context, subtask)
        finally:
            del self._doing[subtask.token]
        if not counts:
            self._check_engine()
        return counts

    def _surviving(self, action: Callable[[], bool | None]) -> bool:
        """A store or lake that is away for a while ends no worker: it looks again later."""
        try:
            return bool(action())
        except DynamicTablesError as error:
            self._say(str(error))
        except self._context.lake.faults as error:
            self._say(str(self._context.lake.told(error, about="worker")))
        self._check_engine()
        return False

    def _wake_slots(self) -> None:
        with self._work:
            self._calls += 1
            self._work.notify_all()

    @contextmanager
    def _counted(self) -> Generator[None]:
        """Be among the workers, from a thread of its own, until the end."""
        me = self._context.claimant
        release_dead(self._context)
        self._store.enter(me)
        ended = threading.Event()

        def stay() -> None:
            while not ended.wait(me.expires_s / BEATS_PER_EXPIRY):
                self._beat()

        thread = threading.Thread(target=stay, name="worker heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._surviving(lambda: self._store.leave(me.owner))

    def _beat(self) -> None:
        """Whatever a heartbeat meets, the next one may do better: a worker whose heart stands
        still would look dead to all others, and know nothing of it."""
        try:
            self._stay()
        except DynamicTablesError as error:
            self._say(str(error))
        except Exception as error:  # noqa: BLE001
            self._say(str(defect("heartbeat", error)))

    def _stay(self) -> None:
        """One heartbeat. Who hangs while it looks lets another one look; who was taken for gone
        is the last one now, or may be refused, where there may be one driver only."""
        me, since = self._context.claimant, self._looks_since
        try:
            there = self._store.stay(me, self._doing_now())
        except Refused as refused:
            self._ended_by = refused
            self.stop()
            raise
        if not there:
            self._say("was taken for gone and is counted again; others may have taken its tables")
        if since is not None and time.monotonic() - since > me.expires_s:
            self._store.enter(me)  # at the end of the row
        self._let_others_look()

    def _doing_now(self) -> str | None:
        return ", ".join(sorted(self._doing.copy().values())) or None

    # Asking

    def ask(self) -> list[str]:
        """Queue up what is due; the ids come back."""
        return self._asking.ask()

    # Refreshing

    def _take(self) -> tuple[Claim, PendingRefresh] | None:
        return self._store.claim_next(self._context.claimant)

    def _execute(self, claim: Claim, wanted: PendingRefresh) -> tuple[RefreshRecord, ...]:
        state = self._store.table_by_id(wanted.table_id)
        if state is None:
            return ()  # dropped meanwhile, and its request with it
        name = str(state.definition.name)
        self._doing[claim.token] = name
        try:
            with self._hearts.kept(claim):
                reached(Step.CLAIMED, name)
                records = self._refreshed(claim, wanted, state)
            for record in records:
                self._tell(record)
            if any(record.reason is Reason.ENGINE_GONE for record in records):
                self._check_engine()
            self._settle(claim, wanted, records)
            reached(Step.RELEASED, name)
        finally:
            del self._doing[claim.token]
        return records

    def _refreshed(
        self, claim: Claim, wanted: PendingRefresh, state: TableState
    ) -> tuple[RefreshRecord, ...]:
        behind = {wanted.table_id: wanted.behind_since} if wanted.behind_since else {}
        request = Request(
            table_ids=frozenset({wanted.table_id}),
            trigger=wanted.trigger,
            refresh_id=wanted.refresh_id,
            cut=wanted.cut,
            behind_since=behind,
            claim=claim,
            only_recover=wanted.trigger == RECOVERY,
        )
        try:
            if request.only_recover and self._store.intent(wanted.table_id) is None:
                return ()  # others have completed it meanwhile
            refresh = GraphRefresh(self._context, request, self._hearts, self._stop)
            return refresh.run().records
        except DynamicTablesError as error:  # it did not come as far as to the table
            return (self._failed(state, wanted, error, claim),)
        except self._context.lake.faults as fault:
            told = self._context.lake.told(fault, about=str(state.definition.name))
            return (self._failed(state, wanted, told, claim),)
        except Exception as fault:  # noqa: BLE001  one table's defect must not end the worker
            return (self._failed(state, wanted, defect(str(state.definition.name), fault), claim),)

    def _failed(
        self,
        state: TableState,
        wanted: PendingRefresh,
        error: DynamicTablesError,
        claim: Claim | None = None,
    ) -> RefreshRecord:
        record = RefreshRecord(
            refresh_id=wanted.refresh_id,
            table=state.definition.name,
            table_id=wanted.table_id,
            action=Action.SKIP,
            outcome=Outcome.SKIPPED if error.reason is Reason.SUSPENDED else Outcome.FAILED,
            reason=error.reason,
            started_at=self._context.instant_or_here(),
            duration_ms=0,
            trigger=wanted.trigger,
            error=sentence(error, state.definition),
            note=error.hint,
        )
        return record_failure(self._context, record, error, claim, state)

    def _settle(
        self, claim: Claim, wanted: PendingRefresh, records: Iterable[RefreshRecord]
    ) -> None:
        """End the request, or leave it to others; what waits for a table that failed is told."""
        mine = next((record for record in records if record.table_id == wanted.table_id), None)
        if mine is not None and mine.reason in GIVEN_BACK:
            self._hand_back(claim, wanted, mine)
            return
        if mine is not None and mine.outcome is not Outcome.DONE:
            self._fail_below(claim, mine)
        if mine is not None and self._stays_open(mine):
            self._hand_back(claim, wanted, mine)
            return
        self._store.finish(claim, wanted)
        self._wake_slots()

    def _stays_open(self, mine: RefreshRecord) -> bool:
        """Who looks would ask for it again at once: nothing about the table tells it to wait."""
        kept_away = mine.reason in NOT_ABOUT_THE_TABLE
        return kept_away and self._store.intent(mine.table_id) is not None

    def _hand_back(self, claim: Claim, wanted: PendingRefresh, mine: RefreshRecord) -> None:
        """Others go on at once with what this worker leaves because it ends; what cannot be done
        just now would come again at once, and waits. Who lost the claim has nothing to give."""
        ends = mine.reason is Reason.INTERRUPTED and self._stop.is_set()
        wait_s = 0.0 if ends else self._wait_s(wanted, mine)
        when = "" if ends else f", to be taken again in {wait_s:.0f} s"
        if self._store.hand_back(claim, wait_s):
            self._say(f"{mine.table}: handed back{when}")

    def _wait_s(self, wanted: PendingRefresh, mine: RefreshRecord) -> float:
        """Whoever keeps us away is through or gone when its claim would have expired."""
        wait_s = retry_after(wanted.returned + 1, self._pace)
        if mine.reason in NOT_ABOUT_THE_TABLE:
            return min(wait_s, self._context.claimant.expires_s)
        return wait_s

    def _fail_below(self, claim: Claim, above: RefreshRecord) -> None:
        states = {state.definition.table_id: state for state in self._store.tables()}
        graph = Graph(state.definition for state in states.values())
        if claim.table_id not in graph:
            return
        waiting = {item.table_id: item for item in self._store.pending()}
        below = [key for key in graph.descendants([claim.table_id]) if key in waiting]
        for table_id in self._store.withdraw(claim, below):
            state, item = states[table_id], waiting[table_id]
            self._tell(self._failed(state, item, upstream_failed(state.definition, above)))
