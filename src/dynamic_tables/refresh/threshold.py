"""What can be told of CARDINALITY_THRESHOLD before a refresh has counted the affected keys.

Logs tell how many rows changed, not of how many keys: many rows may be of one key, and rows that
came and went affect none. So nobody can foretell that the threshold is exceeded; only where every
changed row is of one key at most, that it is not.
"""

from __future__ import annotations

from dynamic_tables.compiler import tree
from dynamic_tables.compiler.functions import makes_rows
from dynamic_tables.compiler.plan import DeltaPlan
from dynamic_tables.errors import Refused
from dynamic_tables.lake.base import Sizes
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.decide import COUNTS_KEYS, Decision, Facts, fallen_back

KEYED = (tree.Aggregate, tree.Window, tree.Distinct)
ONE_KEY_A_ROW = (tree.Scan, tree.Filter, tree.Project, *KEYED)


def above_threshold(facts: Facts, decision: Decision, sizes: Sizes | None) -> str | None:
    """From which number of affected keys on the refresh would do something else; None: never."""
    share = facts.definition.options.cardinality_threshold
    stored = sizes.stored_rows if sizes else None
    if share is None or share >= 1 or stored == 0 or decision.strategy not in COUNTS_KEYS:
        return None
    if stored is None:
        return f"{_instead(facts, decision)} if more than {share:.4g} of its keys are affected"
    most = most_keys(share, stored)
    at_most = _keys_at_most(facts, sizes)
    if at_most is not None and at_most <= most:
        return None
    return f"{_instead(facts, decision)} if more than {most:,} keys are affected"


def most_keys(share: float, stored: int) -> int:
    """The largest number of keys that is not above a share of the stored rows.

    >>> most_keys(0.29, 100), most_keys(0.1, 30), most_keys(0.2, 4)
    (29, 3, 0)
    """
    near = int(share * stored)
    return max(keys for keys in (near - 1, near, near + 1) if keys / stored <= share)


def _keys_at_most(facts: Facts, sizes: Sizes | None) -> int | None:
    """How many keys the changed rows can have; None: as many as there are."""
    plan = facts.plan()
    if sizes is None or facts.clock_moved or not isinstance(plan, DeltaPlan):
        return None
    nodes = list(tree.walk(plan.node))
    simple = all(isinstance(node, ONE_KEY_A_ROW) and not _makes_rows(node) for node in nodes)
    once = sum(isinstance(node, KEYED) for node in nodes) <= 1
    return sizes.changed_rows if simple and once else None


def _makes_rows(node: tree.Node) -> bool:
    return isinstance(node, tree.Project) and any(makes_rows(item) for _, item in node.items)


def _instead(facts: Facts, decision: Decision) -> str:
    """What a refresh does that found too many keys."""
    try:
        fallen_back(facts.definition, decision, Reason.ABOVE_THRESHOLD)
    except Refused as refusal:
        return f"refused ({refusal.reason.value})"
    return f"recomputed ({Reason.ABOVE_THRESHOLD.value})"
