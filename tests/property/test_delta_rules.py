# ruff: noqa: E501  a query a line
"""The delta rules against recomputing: random queries, random rows, random changes, no lake at all.

The leaves are plain DuckDB tables: rows before, rows after, and a feed that is not net (a row may come
and go, come twice, or change into itself). For every query: result after = result before + changes,
as bags; and replacing the affected keys gives the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import duckdb
import pytest
import sqlglot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_queries import SCHEMAS, Queries, Relation
from sqlglot import exp

from dynamic_tables.compiler import stages
from dynamic_tables.compiler.emit import WEIGHT, Side
from dynamic_tables.compiler.plan import DeltaPlan, Situation, plan_query
from dynamic_tables.compiler.refused import NotIncremental

DAYS = {Side.BEFORE: "DATE '2020-01-01'", Side.AFTER: "DATE '2020-01-02'"}
Row = tuple[int | None, ...]


class TableLeaves:
    """Tables `r_before`, `r_after`, `r_changes`."""

    def rows(self, source: str, side: Side, within: object = ()) -> str:
        return f"{source}_{side.value}"

    def changes(self, source: str) -> str:
        return f"{source}_changes"

    def near(self, source: str, side: Side, within: object, column: str) -> str:
        return ""

    def clock(self, function: exp.Expr, side: Side) -> exp.Expr:
        return sqlglot.parse_one(DAYS[side], dialect="duckdb")


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    yield connection
    connection.close()


def random_row(chance: Random, width: int) -> Row:
    return tuple(chance.choice([None, 0, 1, 2, 3]) for _ in range(width))


def fill(db: duckdb.DuckDBPyConnection, chance: Random) -> frozenset[str]:
    """Random tables and their changes; the names of those that changed."""
    moved = set()
    for table, columns in SCHEMAS.items():
        before = [random_row(chance, len(columns)) for _ in range(chance.choice([0, 1, 3, 6]))]
        after, feed = list(before), []
        for _ in range(chance.choice([0, 0, 1, 2, 4])):
            moved.add(table)
            gone = chance.choice(after) if after and chance.random() < 0.6 else None
            if gone is not None:
                after.remove(gone)
                feed.append((*gone, -1))
            if gone is None or chance.random() < 0.5:
                same = gone is not None and chance.random() < 0.2
                new = gone if same and gone else random_row(chance, len(columns))
                after.append(new)
                feed.append((*new, 1))
        spelled = ", ".join(f"{column} INT" for column in columns)
        for suffix, rows, extra in (
            ("before", before, ""),
            ("after", after, ""),
            ("changes", feed, f", {WEIGHT} INT"),
        ):
            name = f"{table}_{suffix}"
            db.execute(f"CREATE OR REPLACE TABLE {name} ({spelled}{extra})")
            if rows:
                db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    return frozenset(moved)


def bag(rows: list[tuple]) -> Counter[str]:
    return Counter(repr(row) for row in rows)


def recomputed(db: duckdb.DuckDBPyConnection, query: str, side: Side) -> Counter[str]:
    for table in SCHEMAS:
        db.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM {table}_{side.value}")
    return bag(db.execute(query.replace("current_date", DAYS[side])).fetchall())


def check(db: duckdb.DuckDBPyConnection, plan: DeltaPlan, query: str, now: Situation) -> None:
    """Both forms of the plan against the query itself."""
    before, after = recomputed(db, query, Side.BEFORE), recomputed(db, query, Side.AFTER)
    result = Counter(before)
    if (changes := plan.changes(now)) is not None:
        rows = db.execute(changes).fetchall()
        assert bag(rows) == bag(staged(db, changes)), f"stages\n{query}\n{changes}"
        for *row, weight in rows:
            result[repr(tuple(row))] += int(weight)
    assert {row: n for row, n in result.items() if n} == after, f"changes\n{query}\n{changes}"
    for approximate in [(), plan.columns[:1]] if plan.key is not None else [()]:
        check_key(db, plan, query, now, approximate, after)


def staged(db: duckdb.DuckDBPyConnection, sql: str) -> list[tuple]:
    """A statement part by part, as an engine gets it that repeats what WITH names."""
    *before, last = stages.stages(sql)
    for stage in before:
        db.execute(f"CREATE OR REPLACE TEMP TABLE {stage.name} AS {stage.sql}")
    rows = db.execute(last.sql).fetchall()
    for stage in before:
        db.execute(f"DROP TABLE {stage.name}")
    return rows


def check_key(
    db: duckdb.DuckDBPyConnection,
    plan: DeltaPlan,
    query: str,
    now: Situation,
    approximate: tuple[str, ...],
    after: Counter[str],
) -> None:
    affected = plan.affected(now, approximate)
    if affected is None:
        return
    db.execute(f"CREATE OR REPLACE TABLE affected AS {affected}")
    same = " AND ".join(
        f'k._dt_k{n} IS NOT DISTINCT FROM v."{column}"'
        for n, column in enumerate(plan.exact_key_columns(approximate))
    )
    for table in SCHEMAS:
        db.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM {table}_before")
    stored = query.replace("current_date", DAYS[Side.BEFORE])
    kept = f"SELECT * FROM ({stored}) AS v WHERE NOT EXISTS (SELECT 1 FROM affected AS k"
    kept += f" WHERE {same or 'TRUE'})"
    rows = plan.rows_of(now, "affected", approximate)
    rest, new = db.execute(kept).fetchall(), db.execute(rows).fetchall()
    assert bag(rest + new) == after, f"keys\n{query}\n{affected}\n{rows}"


def planned(query: Relation | str, columns: tuple[str, ...] | None = None) -> DeltaPlan:
    sql, names = (query.sql, query.columns) if isinstance(query, Relation) else (query, columns)
    plan = plan_query(sql, SCHEMAS, columns=names or (), dialect="duckdb")
    assert isinstance(plan, DeltaPlan), f"{plan.what}\n{sql}"
    return plan


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "LARGE", 3)


def test_parts_that_double_are_computed_by_themselves() -> None:
    """Ten parts that name the one before them twice are a thousand relations, if put in place."""
    parts = ["_dt_d0 AS (\nSELECT a FROM r\n)"]
    parts += [
        f"_dt_d{n} AS (\nSELECT a FROM _dt_d{n - 1}\nUNION ALL\nSELECT a FROM _dt_d{n - 1}\n)"
        for n in range(1, 11)
    ]
    found = list(stages.stages("WITH " + ",\n".join(parts) + "\nSELECT a FROM _dt_d10"))
    assert [stage.name for stage in found] == [*(f"_dt_d{n}" for n in range(1, 10)), ""]
    assert all(stage.sql.count("UNION ALL") == 1 for stage in found)


def test_a_statement_that_need_not_be_taken_apart_stays_as_it_is() -> None:
    """Whatever the user's literals look like."""
    sql = "WITH _dt_d0 AS (\nSELECT 'x\n),\n_dt_d9 AS (\n' AS a FROM r\n)\nSELECT a FROM _dt_d0"
    assert [stage.sql for stage in stages.stages(sql)] == [sql]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32))
def test_random_queries(db: duckdb.DuckDBPyConnection, seed: int) -> None:
    chance = Random(seed)
    query = Queries(chance).query(depth=chance.choice([0, 1, 1, 2, 3]))
    plan = planned(query)
    for _ in range(2):
        now = Situation(leaves=TableLeaves(), moved=fill(db, chance))
        check(db, plan, query.sql, now)


CONSTRUCTS = [
    'select a, b+1 as x from r where c > 1 or b is null',
    'select r.a, s.d from r join s on r.a=s.a',
    'select r.a, s.d, t.e from r join s on r.a=s.a join t on s.d=t.d where r.b>0',
    'select r.a, s.d, t.e from r left join s on r.a=s.a left join t on s.d=t.d',
    'select r.a, r.b, s.d from r full join s on r.a=s.a and r.b < s.d',
    'select r.a, s.d from r right join s using (a)',
    'select a, count(*) n, sum(b) s, avg(c) m, min(b), max(c) from r group by a',
    'select a, count(distinct b) n from r group by a having count(*) > 1',
    'select count(*) n, sum(b) from r',
    'select a from r union select a from s',
    'select a from r intersect all select a from s',
    'select a from r except select a from s',
    'select a,b from r except all select a,d from s',
    'select distinct a, b from r',
    'select a, b, row_number() over (partition by a order by b, c) rn from r',
    'select a, b from r qualify rank() over (partition by a order by b) = 1',
    'select a, sum(sum(b)) over (partition by a) x from r group by a, c',
    'select * from r where exists (select 1 from s where s.a=r.a and s.d>r.b)',
    'select * from r where not exists (select 1 from s where s.a=r.a)',
    'select * from r where a in (select a from s)',
    'select * from r where a not in (select a from s)',
    'select * from r where a not in (select d from s where s.a = r.b)',
    'select *, a in (select a from s) as i from r',
    'select * from r where b = 1 or a not in (select a from s)',
    'select * from r where exists(select 1 from s where s.a=r.a) or b=2',
    'select a, (select max(d) from s where s.a=r.a) m, (select count(*) from s where s.a=r.a) n from r',
    'select a, (select count(*) from s where s.d < r.b) n from r',
    'select a from r where b > (select avg(d) from s)',
    'select a, (select sum(d) from s) t from r',
    'select a, sum(b) s from r group by rollup(a)',
    'select a, b, count(*) n, grouping(a) g from r group by cube(a,b)',
    'select a,c, count(*) n from r group by grouping sets ((a),(c),())',
    'with x as (select a, count(*) n from r group by a) select n, count(*) m from x group by n',
    'with x as (select a, count(*) n from r group by a) select x.a, x.n, s.d from x join s on x.a=s.a',
    'with x as (select a, max(b) n from r group by a) select x.a, y.a as ya from x join x y on x.n=y.a',
    'select a, b from r where c < extract(day from current_date)',
    'select x.a, u.v from r x, unnest([x.a, x.b]) as u(v)',
    'select a, unnest([b, c]) as v from r',
    "select v.x, r.a from r join (values (1,'one'),(2,'two')) v(x,y) on v.x = r.a",
    'select case when a in (select a from s) then (select max(e) from t where t.d = r.b) else 0 end as z, count(*) n from r group by all',
    'select a, count(*) filter (where b > 1) n, bool_and(b>1) x, min_by(c,b) from r group by a',
    'select r.a from r, s where r.a = s.a and r.b in (select d from t where t.e = s.d)',
    'select a, list(b order by b) l from r group by a',
    'select a, quantile_cont(b, 0.5) q, stddev(b) sd from r group by a',
    'select * from r semi join s using (a)',
    'select * from r anti join s on r.a = s.a',
    'select r1.a, r2.b from r r1 join r r2 on r1.b = r2.a',
    'select r.b, s.d, t.e from r, s, t where r.a not in (select d from t) and r.a = s.a and s.d = t.d and r.c > 1',
    'select r.b, s.d from r left join s on r.a = s.a, t where t.d = s.d and r.c = t.e and r.b > 0',
    'select a, sum(n) m from (select a, b, count(*) n from r group by a, b having count(*) > 1) group by a',
    'select a from r where a = (select max(a) from s where s.d = r.b)',
    'select a, max(b) from (select a, b from r union all select a, d from s) group by a having max(b) > (select avg(e) from t)',
    "select a from (select a, unnest([b,c]) v from r)",
    "select count(*) n from (select a, unnest([b,c]) v from r)",
    "select a, count(*) n from r group by a having count(*) > extract(day from current_date)",
    "select a, b from r qualify rank() over (partition by a order by b) <= extract(day from current_date)",
    "select v::varchar x from (select a as v from r union all select d + 0.5 from t)",
    "select v::varchar x, count(*) n from (select a as v from r union all select d + 0.5 from t) group by all",
    "select a from r except select e::varchar||'x' from t",
    "select w.a, sum(w.b) over (partition by w.c) z from r w",
]  # fmt: skip


@pytest.mark.parametrize("query", CONSTRUCTS)
def test_construct(db: duckdb.DuckDBPyConnection, query: str) -> None:
    """Every construct by itself, on many histories; time passes in all of them."""
    chance = Random(query)
    for table in SCHEMAS:
        spelled = ", ".join(f"{column} INT" for column in SCHEMAS[table])
        db.execute(f"CREATE OR REPLACE TABLE {table}_after ({spelled})")
        db.execute(f"CREATE OR REPLACE VIEW {table} AS SELECT * FROM {table}_after")
    names = tuple(column[0] for column in db.execute(query).description)
    plan = planned(query, names)
    for _ in range(15):
        now = Situation(leaves=TableLeaves(), moved=fill(db, chance), clock_moved=True)
        check(db, plan, query, now)


def test_conditions_reach_the_joins_they_belong_to() -> None:
    """Also past a semi join that stands first: no term of the changes is a cross product."""
    query = (
        "select r.b, s.d, t.e from r, s, t where r.a in (select a from s group by a having sum(d) > 2)"
        " and r.a = s.a and s.d = t.d and r.c > 1"
    )
    now = Situation(leaves=TableLeaves(), moved=frozenset(SCHEMAS))
    changes = planned(query, ("b", "d", "e")).changes(now)
    assert changes is not None
    assert "ON TRUE" not in changes


REFUSED = {
    "SELECT a FROM r LIMIT 3": "GLOBAL_LIMIT",
    "SELECT a, row_number() OVER (ORDER BY a) AS n FROM r": "NO_PARTITION",
    "SELECT a, current_date AS today FROM r": "TIME_IN_OUTPUT",
    "SELECT a, random() AS x FROM r": "NON_DETERMINISTIC",
    "SELECT first(a) AS x FROM r": "NON_DETERMINISTIC",
    "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x WHERE n < 3) SELECT n FROM x": (
        "RECURSIVE"
    ),
    "SELECT DISTINCT ON (a) a, b FROM r": "SQL_NOT_FAITHFUL",
    "SELECT 5 AS x, count(*) AS n FROM r GROUP BY ALL": "SQL_NOT_FAITHFUL",
    "SELECT r.a, v.x FROM r, (VALUES (current_date)) v(x)": "TIME_IN_OUTPUT",
    "SELECT r.a, (SELECT max(d) + extract(day FROM current_date) FROM s) AS x FROM r": "TIME_IN_OUTPUT",
    "SELECT r.a, (SELECT max(d) + random() FROM s) AS x FROM r": "NON_DETERMINISTIC",
    "SELECT a FROM r WHERE a IN (SELECT d + random() * 10 FROM s)": "NON_DETERMINISTIC",
    "SELECT r.a, u.v FROM r, unnest((SELECT list(d ORDER BY d) FROM s)) u(v)": "SQL_NOT_FAITHFUL",
    "SELECT count(*) AS n FROM r GROUP BY a IN (SELECT d FROM s)": "SQL_NOT_FAITHFUL",
    "SELECT a FROM r WHERE a IN (SELECT DISTINCT ON (a) d FROM s ORDER BY a, d)": "SQL_NOT_FAITHFUL",
    "SELECT a FROM r WHERE a IN (SELECT d FROM s USING SAMPLE 1)": "SQL_NOT_FAITHFUL",
    "SELECT coalesce(*COLUMNS(*)) AS x FROM r": "SQL_NOT_FAITHFUL",
    "SELECT struct_pack(a, b) AS x FROM r": "SQL_NOT_FAITHFUL",
    "SELECT a FROM r WHERE (a, b) NOT IN (SELECT a, d FROM s)": "SQL_NOT_FAITHFUL",
    "SELECT r AS z FROM r": "SQL_NOT_FAITHFUL",
    "SELECT a, (SELECT d FROM s LIMIT 1) AS d FROM r": "SQL_NOT_FAITHFUL",
}


@pytest.mark.parametrize(("query", "reason"), REFUSED.items())
def test_refused(query: str, reason: str) -> None:
    plan = plan_query(query, SCHEMAS, columns=("x", "y"), dialect="duckdb")
    assert isinstance(plan, NotIncremental)
    assert plan.reason == reason


SPARK_REFUSED = (
    "SELECT a, b, count(*) AS n FROM r GROUP BY a, b WITH ROLLUP",
    "SELECT a, b, count(*) AS n FROM r GROUP BY a, b GROUPING SETS ((a), (b))",
    "SELECT a FROM r VERSION AS OF 1",
    "SELECT hash(*) AS h FROM r",
    "SELECT count(DISTINCT *) AS n FROM r",
)


@pytest.mark.parametrize("query", SPARK_REFUSED)
def test_refused_on_spark(query: str) -> None:
    plan = plan_query(query, SCHEMAS, columns=("x",), dialect="spark")
    assert isinstance(plan, NotIncremental)
    assert plan.reason == "SQL_NOT_FAITHFUL"
