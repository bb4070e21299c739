"""What the compiler knows about functions: which aggregate, which depend on more than their input.

sqlglot knows most aggregates by class. Those that it takes for plain functions are named here, and
so is everything whose result depends on more than its arguments: such a query is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp

from dynamic_tables.compiler.refused import NotIncremental, unfaithful
from dynamic_tables.reasons import Reason

SKETCHES = frozenset({
    "hll_sketch_agg", "hll_union_agg", "kll_merge_agg_bigint", "kll_merge_agg_double",
    "kll_merge_agg_float", "kll_sketch_agg_bigint", "kll_sketch_agg_double", "kll_sketch_agg_float",
    "measure", "schema_of_variant_agg", "theta_intersection_agg", "theta_sketch_agg",
    "theta_union_agg", "tuple_intersection_agg_double", "tuple_intersection_agg_integer",
    "tuple_sketch_agg_double", "tuple_sketch_agg_integer", "tuple_union_agg_double",
    "tuple_union_agg_integer",
})  # fmt: skip

# Aggregates of Spark or DuckDB that sqlglot parses as functions it does not know.
OTHER_AGGREGATES = frozenset({
    "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "every", "some", "any", "bitstring_agg",
    "count_min_sketch", "entropy", "favg", "fsum", "geomean", "geometric_mean", "histogram",
    "histogram_numeric", "kahan_sum", "kurtosis_pop", "list", "mad", "percentile", "product",
    "regr_avgx", "regr_avgy", "regr_count", "regr_intercept", "regr_r2", "regr_slope", "regr_sxx",
    "regr_sxy", "regr_syy", "reservoir_quantile", "sem", "sumkahan", "try_avg", "try_sum",
    "max_by", "min_by", "mean", "arg_min", "arg_max", "arg_min_null", "arg_max_null", "count_star",
    "percentile_cont", "percentile_disc", "std", "any_value", "arbitrary", "arg_min_nulls_last",
    "arg_max_nulls_last", "bitmap_and_agg", "histogram_exact", "json_group_array",
    "json_group_object", "json_group_structure", "sum_no_overflow", "vector_avg", "vector_sum",
    "wavg", "weighted_avg",
    *SKETCHES,
})  # fmt: skip

# Aggregates whose result is the same in whatever order the rows come.
EXACT_KINDS = (
    exp.Count, exp.CountIf, exp.Min, exp.Max, exp.LogicalAnd, exp.LogicalOr, exp.ArgMin, exp.ArgMax,
    exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls, exp.ArrayAgg,
    exp.ArrayUniqueAgg, exp.GroupConcat, exp.ApproxDistinct, exp.Quantile,
    exp.RowNumber, exp.Rank, exp.DenseRank, exp.Ntile, exp.Lag, exp.Lead, exp.FirstValue,
    exp.LastValue, exp.NthValue,
)  # fmt: skip
EXACT_NAMES = frozenset({
    "bit_and", "bit_or", "bit_xor", "bool_and", "bool_or", "every", "some", "any", "bitstring_agg",
    "max_by", "min_by", "arg_min", "arg_max", "arg_min_null", "arg_max_null", "count_star",
    "regr_count", "percentile_cont", "percentile_disc", "arg_min_nulls_last", "arg_max_nulls_last",
    "bitmap_and_agg", "histogram_exact",
})  # fmt: skip

# Their result may differ between two runs over the same rows.
UNSTABLE = frozenset({
    "rand", "randn", "random", "randstr", "uniform", "uuid", "gen_random_uuid", "uuidv4", "uuidv7",
    "shuffle", "monotonically_increasing_id", "spark_partition_id", "input_file_name",
    "input_file_block_start", "input_file_block_length", "any_value", "arbitrary", "first",
    "first_value", "last", "last_value", "collect_list", "list", "approx_top_k", "setseed",
    "approx_percentile", "percentile_approx", "approx_quantile", "histogram_numeric",
    "aes_encrypt", "current_timezone", "nextval", "currval", "txid_current", "current_user",
    "user", "session_user", "version",
    "current_database", "current_catalog", "current_schema", "reservoir_quantile", "mode",
    "getvariable", "getenv", "java_method", "reflect", "json_group_array", "json_group_object",
    "json_group_structure", "vector_avg", "vector_sum", *SKETCHES,
})  # fmt: skip
UNSTABLE_KINDS = (
    exp.Rand, exp.Randn, exp.Uuid, exp.AnyValue, exp.First, exp.Last, exp.Mode,
    exp.CurrentUser, exp.CurrentSchema, exp.ApproxQuantile,
)  # fmt: skip
NEEDS_ORDER = (exp.ArrayAgg, exp.GroupConcat)  # their result is the order of the rows
# Window functions that number rows, or point at some: without ORDER BY at any.
POINTS_AT_ROWS = (exp.RowNumber, exp.Ntile, exp.Lag, exp.Lead, exp.NthValue)
# Spark makes rows, or groups of neighbouring rows, of what stands where a value does.
ROWS_OF_THEIR_OWN = frozenset({"window", "session_window"})

NAMES_FIELDS = frozenset({"struct", "struct_pack", "row", "alias"})  # by what they are made of

CLOCK_KINDS = (
    exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.CurrentDatetime,
    exp.Localtimestamp, exp.Localtime, exp.CurrentTimestampLTZ,
)  # fmt: skip
CLOCK_NAMES = frozenset({
    "now", "today", "get_current_timestamp", "current_localtimestamp", "current_localtime",
    "transaction_timestamp", "curdate", "age", "get_current_time", "unix_timestamp",
})  # fmt: skip

GENERATORS = (exp.Explode, exp.ExplodeOuter, exp.Posexplode, exp.PosexplodeOuter, exp.Unnest)
OTHER_GENERATORS = frozenset({
    "unnest", "stack", "inline", "inline_outer", "flatten", "json_tuple", "variant_explode",
    "variant_explode_outer", "generate_subscripts", "regexp_split_to_table",
})  # fmt: skip


def function_name(node: exp.Expr) -> str:
    """How a function is called, in lower case; empty for everything that is none."""
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    return node.sql_name().lower() if isinstance(node, exp.Func) else ""


def is_aggregate(node: exp.Expr) -> bool:
    """Whether a node folds many rows into one value, its FILTER and ORDER BY included."""
    if isinstance(node, (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)):
        return is_aggregate(node.this)
    return isinstance(node, exp.AggFunc) or function_name(node) in OTHER_AGGREGATES


def may_round(expression: exp.Expr) -> bool:
    """Whether an expression folds numbers: floating ones differ in their last digits between runs.

    What the types are is not asked, so sums of whole numbers count too.
    """
    return any(
        is_aggregate(node) and not isinstance(node, EXACT_KINDS)
        and function_name(node) not in EXACT_NAMES
        for node in expression.walk()
    )  # fmt: skip


def is_generator(node: exp.Expr) -> bool:
    return isinstance(node, GENERATORS) or function_name(node) in OTHER_GENERATORS


def makes_rows(expression: exp.Expr) -> bool:
    """Whether an item of a SELECT list makes several rows of one, or none."""
    return any(map(is_generator, expression.walk()))


def is_clock(node: exp.Expr) -> bool:
    """Whether a node asks for the time."""
    named = function_name(node) in CLOCK_NAMES and not node.args.get("expressions")
    return isinstance(node, CLOCK_KINDS) or named


def reads_clock(expression: exp.Expr) -> bool:
    return any(map(is_clock, expression.walk()))


def _called(window: exp.Window) -> Iterator[exp.Expr]:
    """The function of a window, and what it is wrapped in: IGNORE NULLS."""
    node = window.this
    while isinstance(node, exp.Expr):
        yield node
        node = node.this if isinstance(node, (exp.IgnoreNulls, exp.RespectNulls)) else None


def check_stable(expression: exp.Expr) -> None:
    """Refuse what is not a function of the rows it reads."""
    for node in expression.walk():
        name = function_name(node)
        if name in ROWS_OF_THEIR_OWN:
            raise unfaithful(f"{name}(…), which makes rows of its own")
        unordered = isinstance(node, NEEDS_ORDER) and not node.find(exp.Order)
        if isinstance(node, exp.Window) and not node.args.get("order"):
            for part in _called(node):
                if isinstance(part, POINTS_AT_ROWS):
                    what = f"{function_name(part)} over a window without ORDER BY"
                    raise NotIncremental(
                        Reason.NON_DETERMINISTIC, f"{what} may differ between runs"
                    )
        if isinstance(node, UNSTABLE_KINDS) or name in UNSTABLE or unordered:
            inside = (
                node.find_ancestor(exp.Window) if name in ("first_value", "last_value") else None
            )
            if inside is not None and inside.args.get("order"):
                continue  # FIRST_VALUE over an ordered window
            raise NotIncremental(
                Reason.NON_DETERMINISTIC, f"{name or type(node).__name__} may differ between runs"
            )
