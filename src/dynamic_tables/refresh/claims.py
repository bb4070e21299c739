"""Claims: who may touch a table, and how the right is kept while Spark works."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress

from dynamic_tables.definition import Definition
from dynamic_tables.errors import DynamicTablesError, SetupError
from dynamic_tables.model import TableState
from dynamic_tables.processes import is_dead
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.context import Context, SliceNews
from dynamic_tables.steps import Step, reached
from dynamic_tables.store import Claim, Subtask

LOG = logging.getLogger(__name__)
DIED = "its worker died"
BEATS_PER_EXPIRY = 6  # a claim expires after six missed beats


@contextmanager
def claimed(
    context: Context, definition: Definition, refresh_id: str, hearts: Heartbeats | None = None
) -> Generator[Claim]:
    """Keep other live processes away from a table; raises Held if one is at it.

    `hearts` that beat anyway keep the claim; without them it gets a heartbeat of its own.
    """
    _make_room(context, definition)
    claim = context.store.claim(definition.table_id, refresh_id, context.claimant, is_dead)
    with _kept(context, definition, claim, hearts):
        reached(Step.CLAIMED, str(definition.name))
        yield claim


def claimed_if_one_driver(
    context: Context, state: TableState | None, what: str
) -> AbstractContextManager[Claim | None]:
    """What changes no row goes on beside refreshes, but where two drivers may lose each other's
    commits; tables that are not ours have no claim."""
    if state is None or not context.claimant.is_alone_at(state.definition.location):
        return nullcontext()
    return claimed(context, state.definition, what)


@contextmanager
def created(context: Context, definition: Definition, refresh_id: str) -> Generator[Claim]:
    """Declare a table and hold it from the first moment: no worker may load it half-made."""
    _make_room(context, definition)
    claim = context.store.create_claimed(definition, refresh_id, context.claimant)
    with _kept(context, definition, claim, None):
        yield claim


@contextmanager
def _kept(
    context: Context, definition: Definition, claim: Claim, hearts: Heartbeats | None
) -> Generator[None]:
    """Keep the claim until the block ends, then give it back."""
    with ExitStack() as stack:
        stack.callback(_release, context, claim)
        if hearts is None:
            hearts = Heartbeats(context)
            stack.enter_context(hearts.beating())
        stack.enter_context(hearts.kept(claim))
        yield
    reached(Step.RELEASED, str(definition.name))


def _make_room(context: Context, definition: Definition) -> None:
    """Give back what an ended refresh of ours still holds. Where there may be one driver only, a
    dead one of this host counts no more."""
    for left in list(context.unreleased):
        _release(context, left)
    if context.claimant.is_alone_at(definition.location):
        release_dead(context)


def release_dead(context: Context) -> None:
    """What processes of this host held that are gone need not expire first. Who is dead tells
    nothing: whoever finds its slice tells that it failed."""
    store, here = context.store, context.owner.host
    for claim in store.claims():
        if claim.host == here and is_dead(here, claim.pid):
            store.hand_back(claim)
    for subtask in store.subtasks():
        held = subtask.status == "claimed" and subtask.host == here
        if held and subtask.pid is not None and is_dead(here, subtask.pid):
            lost = Reason.SUBTASKS_LOST
            if store.fail_subtask(subtask, lost.value, DIED, final=False):
                context.tell(SliceNews.failed(subtask, lost, DIED))
    for worker in store.workers():
        if worker.host == here and is_dead(here, worker.pid):
            store.leave(worker.owner)


def _release(context: Context, claim: Claim) -> None:
    """A store that does not answer (its disk is full) must not hide how the refresh ended; the
    claim is given back before the next one is taken, or when this process ends."""
    context.unreleased.add(claim)
    with suppress(SetupError):
        context.store.release(claim)
        context.unreleased.discard(claim)


class Heartbeats:
    """Keeps the claims of one refresh alive from a thread of its own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        # By identity: a database that was restored may give a token twice.
        self._claims: dict[int, Claim | Subtask] = {}
        self._lock = threading.Lock()

    @contextmanager
    def beating(self) -> Generator[None]:
        ended = threading.Event()
        thread = threading.Thread(target=self._beat, args=(ended,), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    @contextmanager
    def kept(self, claim: Claim | Subtask) -> Generator[None]:
        with self._lock:
            self._claims[id(claim)] = claim
        try:
            yield
        finally:
            with self._lock:
                del self._claims[id(claim)]

    def _beat(self, ended: threading.Event) -> None:
        """A lost claim is no matter here: the store refuses what its owner writes."""
        interval = self._context.settings["claim_expires_s"] / BEATS_PER_EXPIRY
        while not ended.wait(interval):
            with self._lock:
                claims = list(self._claims.values())
            for claim in claims:
                self._beat_once(claim)

    def _beat_once(self, claim: Claim | Subtask) -> None:
        """The store may be back at the next beat. A thread that ended, whatever it met, would let
        go of every claim without a word."""
        try:
            self._context.store.heartbeat(claim)
        except DynamicTablesError as error:
            LOG.info("a heartbeat failed: %s", error)
        except Exception:
            LOG.exception("a heartbeat failed")
