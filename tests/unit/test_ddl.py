"""Statements: what is ours, what it means, and what is refused, where and why."""

from __future__ import annotations

from itertools import pairwise

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from dynamic_tables import names
from dynamic_tables._tokens import TokenKind, scan
from dynamic_tables.ddl import (
    AlterStatement,
    CreateMode,
    CreateStatement,
    DescribeStatement,
    DropStatement,
    ExplainStatement,
    OptimizeStatement,
    RefreshStatement,
    RenameTo,
    Resume,
    SetOptions,
    ShowStatement,
    Statement,
    Suspend,
    UnsetOptions,
    parse,
)
from dynamic_tables.errors import StatementError
from dynamic_tables.options import (
    AuxiliaryColumns,
    Deduplication,
    Initialize,
    Options,
    RefreshMode,
    Storage,
    TargetLag,
)
from dynamic_tables.reasons import Reason


def create(text: str) -> CreateStatement:
    statement = parse(text)
    assert isinstance(statement, CreateStatement)
    return statement


# ---- not ours ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   \n",
        "-- CREATE DYNAMIC TABLE t AS SELECT 1",
        "/* CREATE DYNAMIC TABLE */ SELECT 1",
        "/* never closed CREATE DYNAMIC TABLE t",
        "'CREATE DYNAMIC TABLE'",
        "SELECT 1",
        "SELECT 'open",
        "SELECT `open",
        "CREATE TABLE dynamic AS SELECT 1",
        "CREATE OR REPLACE TABLE t AS SELECT 1",
        "CREATE `DYNAMIC` TABLE t AS SELECT 1",
        "CREATE DYNAMIC VIEW t AS SELECT 1",
        "CREATE DYNAMIC",
        "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
        "REFRESH TABLE t",
        "REFRESH `DYNAMIC` TABLE",
        "EXPLAIN SELECT 1",
        "EXPLAIN EXTENDED CREATE DYNAMIC TABLE t AS SELECT 1",
        "EXPLAIN CREATE TABLE t AS SELECT 1",
        "SHOW TABLES",
        "SHOW DYNAMIC",
        "DESCRIBE dynamic",
        "DROP TABLE dynamic",
        "OPTIMIZE t",
        "; CREATE DYNAMIC TABLE t AS SELECT 1",
        "SELECT 1; DROP DYNAMIC TABLE t",
        "SELECT \0 {% x",
    ],
)
def test_everything_else_belongs_to_spark(text: str) -> None:
    assert parse(text) is None


@given(st.text())
def test_no_text_breaks_the_first_look(text: str) -> None:
    """Nothing but an error with a place may come of a text that happens to begin like ours."""
    try:
        found = parse(text)
    except StatementError:
        assert "DYNAMIC" in text.upper()
    else:
        assert found is None or "DYNAMIC" in text.upper()


# ---- statements --------------------------------------------------------------------------------

UNDERSTOOD: list[tuple[str, Statement]] = [
    ("ALTER DYNAMIC TABLE t SUSPEND", AlterStatement(parts=("t",), action=Suspend())),
    ("alter dynamic table a.t resume;", AlterStatement(parts=("a", "t"), action=Resume())),
    (
        "ALTER DYNAMIC TABLE t RENAME TO c.s.`new t`",
        AlterStatement(parts=("t",), action=RenameTo(("c", "s", "new t"))),
    ),
    (
        "ALTER DYNAMIC TABLE set SET target_lag = '1 hour', CLUSTER BY (a) COMMENT 'x'",
        AlterStatement(
            parts=("set",),
            action=SetOptions(
                {"target_lag": TargetLag(3600.0), "cluster_by": ("a",), "comment": "x"}
            ),
        ),
    ),
    (
        "ALTER DYNAMIC TABLE t SET TRIGGER ON CHANGE, ROW_GROUPS BY (a)",
        AlterStatement(
            parts=("t",),
            action=SetOptions(
                {
                    "trigger_on_change": True,
                    "trigger_at_most_every": None,
                    "row_groups_by": "a",
                }
            ),
        ),
    ),
    (
        "ALTER DYNAMIC TABLE t UNSET TARGET_LAG, cluster by, TRIGGER, COMMENT;",
        AlterStatement(
            parts=("t",),
            action=UnsetOptions(("target_lag", "cluster_by", "trigger_on_change", "comment")),
        ),
    ),
    (
        "ALTER DYNAMIC TABLE t UNSET TRIGGER ON CHANGE, ROW_GROUPS BY",
        AlterStatement(parts=("t",), action=UnsetOptions(("trigger_on_change", "row_groups_by"))),
    ),
    (
        "ALTER DYNAMIC TABLE t UNSET AT MOST EVERY",
        AlterStatement(parts=("t",), action=UnsetOptions(("trigger_at_most_every",))),
    ),
    ("REFRESH DYNAMIC TABLE t", RefreshStatement(tables=(("t",),))),
    ("REFRESH DYNAMIC TABLE full", RefreshStatement(tables=(("full",),))),
    (
        "REFRESH DYNAMIC TABLE a, s.b WITH UPSTREAM FULL ; -- bye",
        RefreshStatement(tables=(("a",), ("s", "b")), upstream=True, full=True),
    ),
    ("REFRESH DYNAMIC TABLE a FULL", RefreshStatement(tables=(("a",),), full=True)),
    ("REFRESH DYNAMIC TABLE a WITH UPSTREAM", RefreshStatement(tables=(("a",),), upstream=True)),
    ("EXPLAIN DYNAMIC TABLE s.t", ExplainStatement(target=("s", "t"))),
    (
        "EXPLAIN CREATE OR ALTER DYNAMIC TABLE t COMMENT 'c' AS SELECT 1;",
        ExplainStatement(
            target=CreateStatement(
                parts=("t",),
                query="SELECT 1",
                options=Options(comment="c"),
                mode=CreateMode.OR_ALTER,
            )
        ),
    ),
    ("SHOW DYNAMIC TABLES", ShowStatement()),
    ("show\ndynamic /* all */ tables ;", ShowStatement()),
    ("DESCRIBE DYNAMIC TABLE t", DescribeStatement(parts=("t",))),
    ("DESC DYNAMIC TABLE s.t;", DescribeStatement(parts=("s", "t"))),
    ("DROP DYNAMIC TABLE t", DropStatement(parts=("t",))),
    ("DROP DYNAMIC TABLE if", DropStatement(parts=("if",))),
    (
        "DROP DYNAMIC TABLE IF EXISTS s.t CASCADE",
        DropStatement(parts=("s", "t"), if_exists=True, cascade=True),
    ),
    ("OPTIMIZE DYNAMIC TABLE t", OptimizeStatement(parts=("t",))),
    (
        "CREATE DYNAMIC TABLE IF NOT EXISTS t AS SELECT 1",
        CreateStatement(parts=("t",), query="SELECT 1", options=Options(), if_not_exists=True),
    ),
    (
        "\n-- daily\n/* a /* nested */ b */ CREATE Or Replace\tDynamic Table if AS VALUES (1)",
        CreateStatement(
            parts=("if",), query="VALUES (1)", options=Options(), mode=CreateMode.OR_REPLACE
        ),
    ),
]


@pytest.mark.parametrize(("text", "statement"), UNDERSTOOD)
def test_understood(text: str, statement: Statement) -> None:
    assert parse(text) == statement


def test_all_options_together() -> None:
    statement = create("""
        CREATE DYNAMIC TABLE sales.by_customer
            target_lag = '1 hour 30 minutes'
            TRIGGER ON CHANGE AT MOST EVERY '1 minute'   -- not more often
            REFRESH_MODE = incremental INITIALIZE = ON_SCHEDULE
            CARDINALITY_THRESHOLD = .5 DEDUPLICATION = true AUXILIARY_COLUMNS = AUTO
            STORAGE=MERGE_ON_READ MAX_SCAN_BYTES=1000
            ALLOW_PARALLEL_REFRESH = TRUE PARALLEL_THRESHOLD = 5 MAX_PARALLELISM = 2
            PARTITIONED BY (day, `odd, ``col`) ROW_GROUPS BY (as)
            COMMENT 'it''s \\'fine\\'\\n'
        AS SELECT 1
    """)
    assert statement.options == Options(
        target_lag=TargetLag(5400.0),
        trigger_on_change=True,
        trigger_at_most_every=60.0,
        refresh_mode=RefreshMode.INCREMENTAL,
        initialize=Initialize.ON_SCHEDULE,
        cardinality_threshold=0.5,
        deduplication=Deduplication.TRUE,
        auxiliary_columns=AuxiliaryColumns.AUTO,
        storage=Storage.MERGE_ON_READ,
        max_scan_bytes=1000,
        allow_parallel_refresh=True,
        parallel_threshold=5,
        max_parallelism=2,
        partitioned_by=("day", "odd, `col"),
        row_groups_by="as",
        comment="it's 'fine'\n",
    )


@pytest.mark.parametrize(
    ("written", "lag"),
    [("DOWNSTREAM", TargetLag(None)), ('"2 days"', TargetLag(172_800.0))],
)
def test_target_lag(written: str, lag: TargetLag) -> None:
    assert create(f"CREATE DYNAMIC TABLE t TARGET_LAG = {written} AS TABLE x").options == Options(
        target_lag=lag
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'plain'", "plain"),
        ("''", ""),
        ("''''", "'"),
        (r"'a\\b\tc\%'", "a\\b\tc\\%"),
        (r"r'a\n'", r"a\n"),
        ("\"it''s\"", "it''s"),
        ('"a""b"', 'a"b'),
        (r"'\u00e9\U0001F600\101\q'", "\u00e9\U0001f600Aq"),
        (r"'\ud83d\ude00'", "\U0001f600"),
        (r"'\ud83d'", "\ufffd"),
        ("'é; -- /* 😀\n'", "é; -- /* 😀\n"),
    ],
)
def test_comment_is_read_as_spark_reads_strings(written: str, value: str) -> None:
    assert create(f"CREATE DYNAMIC TABLE t COMMENT {written} AS SELECT 1").options.comment == value


# ---- names -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ("t", ("t",)),
        ("c.s.t", ("c", "s", "t")),
        ("s . t", ("s", "t")),
        ("s/**/./**/t", ("s", "t")),
        ("`a``b`.`c.d`", ("a`b", "c.d")),
        ("`2024`.`my-table`", ("2024", "my-table")),
        ("select.from.where", ("select", "from", "where")),
        ("table", ("table",)),
        ("target_lag", ("target_lag",)),
        ("as.as", ("as", "as")),
        ("`as`", ("as",)),
        ("größe.表", ("größe", "表")),
        ("`😀 \n;`", ("😀 \n;",)),
        ("_x1", ("_x1",)),
    ],
)
def test_names(written: str, parts: tuple[str, ...]) -> None:
    assert create(f"CREATE DYNAMIC TABLE {written} AS SELECT 1").parts == parts
    assert create(f"CREATE DYNAMIC TABLE {written} COMMENT '' AS SELECT 1").parts == parts


@given(st.lists(st.text(min_size=1), min_size=1, max_size=3).map(tuple))
def test_quoted_names_round_trip(parts: tuple[str, ...]) -> None:
    written = ".".join(names.quote(part) for part in parts)
    assert create(f"CREATE DYNAMIC TABLE {written} AS SELECT 1").parts == parts
    assert parse(f"DROP DYNAMIC TABLE {written};") == DropStatement(parts=parts)


@given(st.text())
def test_texts_round_trip(text: str) -> None:
    written = names.literal(text)
    assert create(f"CREATE DYNAMIC TABLE t COMMENT {written} AS SELECT 1").options.comment == text


# ---- queries -----------------------------------------------------------------------------------

QUERIES = [
    "SELECT 1",
    "select a as b from t as u where c = ';'",
    "WITH x AS (SELECT 1) SELECT * FROM x",
    "FROM t SELECT a",
    "VALUES (1), (2)",
    "TABLE t",
    "(SELECT 1) UNION ALL (SELECT 2)",
    "SELECT ';', \";\", `;`, r'\\', 'it''s;' -- ; not here\n, /* nor; /* here; */ ; */ 1",
    "SELECT 'a\\';b'",
    "SELECT /*+ BROADCAST(t) */ 'é', '😀' FROM `größe`",
    "/* first */ SELECT 1 -- last",
    "SELECT 10L, 1e5BD, 0x1F, .5, x'AB', a.1b, ? , :p, $x FROM t",
    "SELECT a\r\nFROM t",
    "anything goes here, Spark will say",
]


@pytest.mark.parametrize("end", ["", ";", "\n ; -- done", "  \n"])
@pytest.mark.parametrize("query", QUERIES)
def test_the_query_is_cut_out_verbatim(query: str, end: str) -> None:
    end = f"\n{end}" if "--" in query else end
    assert create(f"CREATE DYNAMIC TABLE t COMMENT ' AS ' AS \n {query}{end}").query == query
    assert create(f"CREATE DYNAMIC TABLE `AS x` AS{' ' + query}{end}").query == query


def test_a_line_comment_goes_on_after_a_backslash_as_in_spark() -> None:
    assert create("CREATE DYNAMIC TABLE t AS SELECT 1 -- x \\\n; y\n + 1").query.endswith("+ 1")


@pytest.mark.parametrize("query", QUERIES[:7] + QUERIES[8:11])
def test_tokens_lie_where_sqlglot_sees_them(query: str) -> None:
    ours = [token.start for token in scan(query) if token.kind is not TokenKind.END]
    theirs = [token.start for token in sqlglot.tokenize(query, read="spark")]
    assert set(theirs) <= set(ours)


@given(st.text(alphabet="ab1 .;,'\"`\\-/*+\n()="))
def test_tokens_cover_the_text_or_are_refused(text: str) -> None:
    try:
        tokens = list(scan(text))
    except StatementError:
        return
    assert tokens[-1].kind is TokenKind.END
    for before, after in pairwise(tokens):
        assert before.start < before.end <= after.start


# ---- refused -----------------------------------------------------------------------------------

C = "CREATE DYNAMIC TABLE"
A = "ALTER DYNAMIC TABLE t"

# «…» marks the place the error must name; the marks are taken out before parsing.
REFUSED: list[tuple[str, Reason]] = [
    # names
    (f"{C}«»", Reason.SYNTAX),
    (f"{C} «AS» SELECT 1", Reason.SYNTAX),
    (f"{C} «1abc» AS SELECT 1", Reason.SYNTAX),
    (f"{C} «2024» AS SELECT 1", Reason.SYNTAX),
    (f"{C} s«.2024» AS SELECT 1", Reason.SYNTAX),
    (f"{C} s.«2024x» AS SELECT 1", Reason.SYNTAX),
    (f"{C} my«-»table AS SELECT 1", Reason.SYNTAX),
    (f"{C} a.b.c.«d» AS SELECT 1", Reason.SYNTAX),
    (f"{C} a.«.»b AS SELECT 1", Reason.SYNTAX),
    (f"{C} a. «'x'» AS SELECT 1", Reason.SYNTAX),
    (f"{C} «``» AS SELECT 1", Reason.SYNTAX),
    (f"{C} «'t'» AS SELECT 1", Reason.SYNTAX),
    (f"{C} «`t» AS SELECT 1", Reason.SYNTAX),
    (f"{C} IF NOT «t» AS SELECT 1", Reason.SYNTAX),
    ("CREATE OR REPLACE DYNAMIC TABLE «IF» NOT EXISTS t AS SELECT 1", Reason.CONTRADICTION),
    ("CREATE OR ALTER DYNAMIC TABLE «IF» NOT EXISTS t AS SELECT 1", Reason.CONTRADICTION),
    # the query
    (f"{C} t«»", Reason.NO_QUERY),
    (f"{C} t«;»", Reason.NO_QUERY),
    (f"{C} t AS«»", Reason.NO_QUERY),
    (f"{C} t AS «;»", Reason.NO_QUERY),
    (f"{C} t AS -- SELECT 1«»", Reason.NO_QUERY),
    (f"{C} t AS /* SELECT 1 */ «;» ", Reason.NO_QUERY),
    (f"{C} t «SELECT» 1", Reason.NO_QUERY),
    (f"{C} t COMMENT 'x' «WITH» x AS (SELECT 1) SELECT 1", Reason.NO_QUERY),
    (f"{C} t COMMENT 'x'«»", Reason.NO_QUERY),
    (f"{C} t «(»a INT) AS SELECT 1", Reason.SYNTAX),
    (f"{C} t AS SELECT «'»open", Reason.SYNTAX),
    (f"{C} t AS SELECT «`»open;", Reason.SYNTAX),
    (f"{C} t AS SELECT 1 «/*» open /* */", Reason.SYNTAX),
    (f"{C} t AS SELECT 1; «DROP» TABLE x", Reason.SEVERAL_STATEMENTS),
    (f"{C} t AS SELECT 1;«;»", Reason.SEVERAL_STATEMENTS),
    (f"{C} t AS SELECT 'a'';' ; -- c\n «SELECT» 2", Reason.SEVERAL_STATEMENTS),
    # options
    (f"{C} t «TARGET_LAK» = '5 minutes' AS SELECT 1", Reason.UNKNOWN_OPTION),
    (f"{C} t «USING» delta AS SELECT 1", Reason.UNKNOWN_OPTION),
    (f"{C} t «PARTITION» BY (a) AS SELECT 1", Reason.UNKNOWN_OPTION),
    (f"{C} t «`COMMENT`» 'x' AS SELECT 1", Reason.SYNTAX),
    (f"{C} t TARGET_LAG «'5 minutes'» AS SELECT 1", Reason.SYNTAX),
    (f"{C} t TARGET_LAG = «;»", Reason.SYNTAX),
    (f"{C} t TARGET_LAG =«»", Reason.SYNTAX),
    (f"{C} t TARGET_LAG = «5» minutes AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t TARGET_LAG = «'soon'» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t TARGET_LAG = «UPSTREAM» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t TARGET_LAG = '5 minutes'«,» COMMENT 'x' AS SELECT 1", Reason.SYNTAX),
    (f"{C} t COMMENT 'x'\n «COMMENT» 'y' AS SELECT 1", Reason.SYNTAX),
    (f"{C} t COMMENT «=» 'x' AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t COMMENT «x» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t COMMENT 'x' «'y'» AS SELECT 1", Reason.SYNTAX),
    (f"{C} t REFRESH_MODE = «'FULL'» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t REFRESH_MODE = «OFTEN» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t REFRESH_MODE = «`FULL`» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t INITIALIZE = «true» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t CARDINALITY_THRESHOLD = «0» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t CARDINALITY_THRESHOLD = «-0.5» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t CARDINALITY_THRESHOLD = «1.5» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t CARDINALITY_THRESHOLD = «'0.5'» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t DEDUPLICATION = «1» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t MAX_SCAN_BYTES = «1e6» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t MAX_SCAN_BYTES = «10L» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t MAX_PARALLELISM = «- 1» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t ALLOW_PARALLEL_REFRESH = «yes» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t TRIGGER «CHANGE» AS SELECT 1", Reason.SYNTAX),
    (f"{C} t TRIGGER ON CHANGE AT «LEAST» EVERY '1 day' AS SELECT 1", Reason.SYNTAX),
    (f"{C} t TRIGGER ON CHANGE AT MOST EVERY «DOWNSTREAM» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t «AT» MOST EVERY '1 minute' AS SELECT 1", Reason.CONTRADICTION),
    (
        f"{C} t TRIGGER ON CHANGE COMMENT '' «AT» MOST EVERY '1 day' AS TABLE x",
        Reason.CONTRADICTION,
    ),
    # columns
    (f"{C} t CLUSTER «(»a) AS SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY «a» AS SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY («)» AS SELECT 1", Reason.BAD_VALUE),
    (f"{C} t CLUSTER BY (a,«)» AS SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY (a «b») AS SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY (a«.»b) AS SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY (a «AS» SELECT 1", Reason.SYNTAX),
    (f"{C} t CLUSTER BY (a, b, «`A`») AS SELECT 1", Reason.CONTRADICTION),
    (f"{C} t ROW_GROUPS BY (a, «b») AS SELECT 1", Reason.BAD_VALUE),
    # contradictions
    (f"{C} t CLUSTER BY (a) «PARTITIONED» BY (b) AS SELECT 1", Reason.CONTRADICTION),
    (f"{C} t PARTITIONED BY (a) «CLUSTER» BY (b) AS SELECT 1", Reason.CONTRADICTION),
    (f"{C} t ROW_GROUPS BY (a) «CLUSTER» BY (b) AS SELECT 1", Reason.CONTRADICTION),
    (f"{C} t STORAGE = MERGE_ON_READ «REFRESH_MODE» = FULL AS SELECT 1", Reason.CONTRADICTION),
    (
        f"{C} t AUXILIARY_COLUMNS = NONE COMMENT 'é😀' -- ü\n «STORAGE» = MERGE_ON_READ AS TABLE x",
        Reason.CONTRADICTION,
    ),
    (f"{C} t TARGET_LAG = DOWNSTREAM «TRIGGER» ON CHANGE AS SELECT 1", Reason.CONTRADICTION),
    # the others
    (f"{A}«»", Reason.SYNTAX),
    (f"{A} «EXPLODE»", Reason.SYNTAX),
    (f"{A} SET«»", Reason.SYNTAX),
    (f"{A} SET «;»", Reason.SYNTAX),
    (f"{A} SET «COLOUR» = 'red'", Reason.UNKNOWN_OPTION),
    (f"{A} SET «SELECT» 1", Reason.UNKNOWN_OPTION),
    (f"{A} SET COMMENT 'x',«»", Reason.SYNTAX),
    (f"{A} SET «,» COMMENT 'x'", Reason.SYNTAX),
    (f"{A} SET COMMENT 'x', «COMMENT» 'y'", Reason.SYNTAX),
    (f"{A} SET COMMENT 'x' «AS» SELECT 1", Reason.SYNTAX),
    (f"{A} SET MAX_PARALLELISM = «0»", Reason.BAD_VALUE),
    (f"{A} UNSET«»", Reason.SYNTAX),
    (f"{A} UNSET «COLOUR»", Reason.UNKNOWN_OPTION),
    (f"{A} UNSET COMMENT «TARGET_LAG»", Reason.SYNTAX),
    (f"{A} UNSET COMMENT, «COMMENT»", Reason.SYNTAX),
    (f"{A} UNSET COMMENT «=» 'x'", Reason.SYNTAX),
    (f"{A} UNSET CLUSTER«»", Reason.SYNTAX),
    (f"{A} «RENAME» x", Reason.SYNTAX),
    (f"{A} RENAME TO«»", Reason.SYNTAX),
    (f"{A} SUSPEND «NOW»", Reason.SYNTAX),
    (f"{A} SUSPEND; «RESUME»", Reason.SEVERAL_STATEMENTS),
    ("REFRESH DYNAMIC TABLE«»", Reason.SYNTAX),
    ("REFRESH DYNAMIC TABLE a,«»", Reason.SYNTAX),
    ("REFRESH DYNAMIC TABLE a «b»", Reason.SYNTAX),
    ("REFRESH DYNAMIC TABLE a WITH «DOWNSTREAM»", Reason.SYNTAX),
    ("REFRESH DYNAMIC TABLE a FULL «WITH» UPSTREAM", Reason.SYNTAX),
    ("EXPLAIN DYNAMIC TABLE a «b»", Reason.SYNTAX),
    ("EXPLAIN CREATE DYNAMIC TABLE a«»", Reason.NO_QUERY),
    ("SHOW DYNAMIC TABLES «LIKE» 'x'", Reason.SYNTAX),
    ("SHOW DYNAMIC TABLES; «SHOW» TABLES", Reason.SEVERAL_STATEMENTS),
    ("DESCRIBE DYNAMIC TABLE «;»", Reason.SYNTAX),
    ("DESC DYNAMIC TABLE t «EXTENDED»", Reason.SYNTAX),
    ("DROP DYNAMIC TABLE IF EXISTS«»", Reason.SYNTAX),
    ("DROP DYNAMIC TABLE t «RESTRICT»", Reason.SYNTAX),
    ("OPTIMIZE DYNAMIC TABLE t «ZORDER» BY (a)", Reason.SYNTAX),
    ("-- é😀\r\n/* ü */ DROP DYNAMIC TABLE `ö😀`\r\n\t«,» b", Reason.SYNTAX),
]


@pytest.mark.parametrize(("marked", "reason"), REFUSED)
def test_refused(marked: str, reason: Reason) -> None:
    position = marked.index("«")
    text = marked.replace("«", "").replace("»", "")
    with pytest.raises(StatementError) as caught:
        parse(text)
    error = caught.value
    before = text[:position]
    assert error.reason is reason
    line, column = before.count("\n") + 1, position - (before.rfind("\n") + 1) + 1
    assert (error.line, error.column) == (line, column)
    assert error.hint


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        (f"{C} t TARGET_LAK = '1 day' AS SELECT 1", "did you mean TARGET_LAG?"),
        (f"{C} t PARTITION BY (a) AS SELECT 1", "did you mean PARTITIONED BY?"),
        (f"{C} t COMMENT 'x', STORAGE = IN_PLACE AS SELECT 1", "not by commas"),
        (f"{C} t SELECT 1", "write AS SELECT"),
        (f"{C} t (a INT) AS SELECT 1", "those of the query"),
        (f"{C} t TARGET_LAG = 5 minutes AS SELECT 1", "TARGET_LAG = '5 minutes'"),
        (f"{C} 2024 AS SELECT 1", "`2024`"),
        (f"{C} my-table AS SELECT 1", "back-ticks"),
        (f"{A} UNSET COMMENT STORAGE", "commas"),
        ("DROP DYNAMIC TABLE t NOW", "DROP DYNAMIC TABLE [IF EXISTS] name [CASCADE]"),
    ],
)
def test_hints_say_what_to_type(text: str, hint: str) -> None:
    with pytest.raises(StatementError) as caught:
        parse(text)
    assert hint in str(caught.value.hint)


def test_long_texts_take_linear_time() -> None:
    many = 200_000
    create(f"{C} t AS SELECT '{'x' * many}{chr(39) * 2 * many}' {'/*' * 100}{'*/' * 100}")
    for text in ("'" + "''" * many, "'" + "\\'" * many, "`" + "``" * many, "/*" * many):
        with pytest.raises(StatementError, match="never closed"):
            parse(f"{C} t AS SELECT {text}")
