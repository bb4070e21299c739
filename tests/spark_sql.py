"""SQL as Spark's users write it: every query here has an incremental plan on Spark."""
# ruff: noqa: E501  a query a line

from __future__ import annotations

COLUMNS = (
    "k INT, v BIGINT, x DOUBLE, m DECIMAL(10,2), s STRING, d DATE, ts TIMESTAMP, b BOOLEAN,"
    " a ARRAY<INT>, mp MAP<STRING,INT>, st STRUCT<f:INT,g:STRING>, bin BINARY"
)


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.replace("|\n", "| ").split(" | ")]


SCALARS = _listed(
    r"""
d > DATE '2024-01-01' | ts >= TIMESTAMP '2024-01-01 00:00:00' | d + INTERVAL '1' DAY |
d + INTERVAL 1 MONTH | ts - INTERVAL '2 03:04' DAY TO MINUTE | 1.5D | 10L | 1e3 | X'1F' |
k BETWEEN 1 AND 3 | k NOT BETWEEN 1 AND 3 | CASE k WHEN 1 THEN 'a' ELSE 'b' END |
CASE WHEN k = 1 THEN 'a' WHEN k = 2 THEN 'b' END | k NOT IN (1, 2) | s LIKE 'a%' |
s NOT LIKE 'a!%' ESCAPE '!' | s RLIKE '^a.*' | s ILIKE 'A%' | s REGEXP 'x' | k <=> 1 |
concat(s, 'x') | concat_ws('-', s, s) | k::string | CAST(s AS INT) | try_cast(s AS INT) |
date_trunc('day', ts) | trunc(d, 'MM') | to_date(s) | to_date(s, 'yyyy-MM-dd') | to_timestamp(s) |
date_format(ts, 'yyyy-MM') | year(d) | month(d) | dayofweek(d) | weekofyear(d) | quarter(d) |
hour(ts) | extract(YEAR FROM d) | date_part('month', d) | datediff(d, d) | date_add(d, 1) |
add_months(d, 1) | last_day(d) | months_between(ts, ts) | unix_timestamp(ts) | from_unixtime(v) |
to_unix_timestamp(ts) | timestampdiff(DAY, ts, ts) | timestampadd(DAY, 1, ts) |
make_date(2024, 1, k) | nvl(k, 0) | ifnull(k, 0) | if(k > 1, 1, 0) | nullif(k, 1) |
coalesce(k, 0) | nvl2(k, 1, 2) | greatest(k, 1) | least(k, 1) | decode(k, 1, 'a', 'b') |
substr(s, 1, 2) | substring(s, 1, 2) | substring(s FROM 1 FOR 2) | left(s, 2) | right(s, 2) |
trim(s) | trim(BOTH 'x' FROM s) | ltrim(s) | lpad(s, 5, '0') | upper(s) | lower(s) | initcap(s) |
length(s) | char_length(s) | instr(s, 'a') | locate('a', s) | position('a' IN s) |
replace(s, 'a', 'b') | translate(s, 'a', 'b') | regexp_replace(s, 'a', 'b') |
regexp_extract(s, '(a)', 1) | regexp_like(s, 'a') | split(s, ',') | split(s, ',')[0] |
split_part(s, ',', 1) | reverse(s) | repeat(s, 2) | md5(s) | sha2(s, 256) | hash(k) |
xxhash64(k, s) | crc32(s) | base64(bin) | hex(k) | ascii(s) | abs(k) | round(x, 2) |
bround(x, 2) | ceil(x) | floor(x) | power(x, 2) | sqrt(x) | exp(x) | ln(x) | log10(x) |
log(2, x) | sign(x) | mod(k, 2) | k % 2 | k DIV 2 | k / 2 | pmod(k, 2) | -k | ~k | k & 1 |
shiftleft(k, 1) | isnan(x) | x IS NULL | x IS NOT NULL | b IS TRUE | NOT b |
k IS DISTINCT FROM 1 | a[0] | element_at(a, 1) | size(a) | array_contains(a, 1) | sort_array(a) |
array_distinct(a) | array_join(a, ',') | transform(a, y -> y + 1) | filter(a, y -> y > 1) |
exists(a, y -> y > 1) | aggregate(a, 0, (acc, y) -> acc + y) | array(1, k) | mp['x'] |
map_keys(mp) | map('a', k) | st.f | struct(k, s) | named_struct('p', k) | to_json(st) |
get_json_object(s, '$.a') | from_json(s, 'a INT') | try_divide(k, 0) | typeof(k) |
cast(ts AS date) | date(ts) | string(k) | int(s) | double(s) | width_bucket(x, 0, 10, 5) |
format_number(x, 2) | format_string('%s', s) | soundex(s) | levenshtein(s, 'a') | bit_count(k) |
conv('ff', 16, 10) | nanvl(x, 0) | date_diff(d, d) | dateadd(d, 1) | dateadd(DAY, 1, d) |
contains(s, 'a') | startswith(s, 'a') | endswith(s, 'a') | btrim(s) | elt(1, s, s) |
find_in_set('a', s) | space(2) | overlay(s PLACING 'x' FROM 1) | to_char(m, '999.99') |
to_number(s, '999') | sequence(1, 3) | array_position(a, 1) | flatten(array(a)) | slice(a, 1, 2) |
zip_with(a, a, (p, q) -> p + q) | array_max(a) | cardinality(a) | map_from_arrays(a, a) |
date_from_unix_date(k) | weekday(d) | dayofmonth(d) | day(d) | dayofyear(d) | minute(ts) |
second(ts) | timestamp_seconds(v) |
convert_timezone('UTC', 'Europe/Berlin', to_timestamp_ntz(s)) | from_utc_timestamp(ts, 'UTC') |
to_utc_timestamp(ts, 'UTC') | unhex('1F') | bin(k) | degrees(x) | sin(x) | pi() | e() | cbrt(x) |
hypot(x, x) | factorial(k) | equal_null(k, 1) | k != 1 | k <> 1 | !b | k == 1 | s || 'x'
""".strip()
)

AGGREGATES = _listed(
    """
count(*) | count(k) | count(DISTINCT s) | count(DISTINCT s, k) | sum(v) | sum(DISTINCT v) |
avg(m) | min(s) | max(d) | stddev(x) | stddev_pop(x) | variance(x) | var_samp(x) | corr(x, x) |
covar_pop(x, x) | skewness(x) | kurtosis(x) | count_if(b) | bool_and(b) | bool_or(b) | every(b) |
some(b) | min_by(s, v) | max_by(s, v) | collect_set(s) | percentile(v, 0.5) | median(v) |
percentile_cont(0.5) WITHIN GROUP (ORDER BY v) | approx_count_distinct(s) |
sum(v) FILTER (WHERE b) | count(*) FILTER (WHERE v > 1) | sum(CASE WHEN b THEN v ELSE 0 END) |
bit_or(v) | bit_xor(v) | regr_slope(x, x) | mean(x) | std(x) | try_sum(v) | try_avg(v) |
sum(v) / count(*) | round(avg(m), 2) | max(struct(v, s))
""".strip()
)

SHAPES = """
SELECT k, count(*) AS c FROM r GROUP BY 1
SELECT k, s, count(*) AS c FROM r GROUP BY ALL
SELECT k, s, count(*) AS c FROM r GROUP BY ROLLUP(k, s)
SELECT k, s, count(*) AS c FROM r GROUP BY k, s WITH ROLLUP
SELECT k, s, count(*) AS c FROM r GROUP BY CUBE(k, s)
SELECT k, s, grouping(k) AS g, count(*) AS c FROM r GROUP BY GROUPING SETS ((k), (s), ())
SELECT date_trunc('day', ts) AS day, count(*) AS c FROM r GROUP BY date_trunc('day', ts)
SELECT date_trunc('day', ts) AS day, count(*) AS c FROM r GROUP BY day HAVING count(*) > 1
SELECT DISTINCT k FROM r
SELECT DISTINCT k, s FROM r ORDER BY k
SELECT r.k, o.n FROM r JOIN o ON r.k = o.k
SELECT k, n FROM r JOIN o USING (k)
SELECT k, s, n FROM r NATURAL JOIN o
SELECT r.k, o.n FROM r LEFT OUTER JOIN o ON r.k = o.k AND o.w > 1
SELECT o.k, r.s FROM r RIGHT JOIN o ON r.k = o.k
SELECT r.k, o.k AS k2 FROM r FULL OUTER JOIN o ON r.k = o.k
SELECT r.k FROM r LEFT SEMI JOIN o ON r.k = o.k
SELECT r.k FROM r LEFT ANTI JOIN o ON r.k = o.k
SELECT r.k, o.n FROM r CROSS JOIN o
SELECT r.k, o.n FROM r, o WHERE r.k = o.k
SELECT r.k, o.n FROM r JOIN o ON r.d BETWEEN o.d AND o.d
SELECT /*+ BROADCAST(o) */ r.k, o.n FROM r JOIN o ON r.k = o.k
SELECT r.k, e FROM r LATERAL VIEW explode(a) x AS e
SELECT r.k, e FROM r LATERAL VIEW OUTER explode(a) x AS e
SELECT r.k, p, e FROM r LATERAL VIEW posexplode(a) x AS p, e
SELECT k, explode(a) AS e FROM r
SELECT k, explode_outer(a) AS e FROM r
SELECT k, e FROM r, LATERAL explode(a) AS t(e)
SELECT k, stack(2, 1, 2) AS c FROM r
SELECT k FROM r UNION SELECT k FROM o
SELECT k FROM r UNION ALL SELECT k FROM o
SELECT k FROM r INTERSECT SELECT k FROM o
SELECT k FROM r EXCEPT SELECT k FROM o
SELECT k FROM r MINUS SELECT k FROM o
SELECT k FROM r EXCEPT ALL SELECT k FROM o
SELECT k, row_number() OVER (PARTITION BY k ORDER BY v DESC) AS rn FROM r
SELECT k, sum(v) OVER (PARTITION BY k) AS t FROM r
SELECT k, lag(v, 1, 0) OVER (PARTITION BY k ORDER BY d) AS t FROM r
SELECT k, sum(v) OVER (PARTITION BY k ORDER BY d ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS t FROM r
SELECT k, first_value(v) IGNORE NULLS OVER (PARTITION BY k ORDER BY d) AS t FROM r
SELECT k, ntile(4) OVER (PARTITION BY k ORDER BY v) AS t FROM r
SELECT k, rank() OVER w AS a1, dense_rank() OVER w AS a2 FROM r WINDOW w AS (PARTITION BY k ORDER BY v)
SELECT k, v FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v) = 1
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS rn FROM o JOIN (SELECT k AS kk, v FROM r) ON k = kk) WHERE rn = 1
WITH c AS (SELECT k, sum(v) AS t FROM r GROUP BY k) SELECT o.n, c.t FROM c JOIN o ON c.k = o.k
WITH c(p, q) AS (SELECT k, v FROM r) SELECT p, q FROM c
SELECT k FROM r WHERE EXISTS (SELECT 1 FROM o WHERE o.k = r.k)
SELECT k FROM r WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = r.k AND o.w > r.v)
SELECT k FROM r WHERE k IN (SELECT k FROM o)
SELECT k FROM r WHERE k NOT IN (SELECT k FROM o)
SELECT k, (SELECT max(w) FROM o WHERE o.k = r.k) AS m FROM r
SELECT k FROM r WHERE v > (SELECT avg(w) FROM o)
SELECT * EXCEPT (a) FROM r
SELECT r.* FROM r WHERE k > 0
SELECT k, count(*) AS c FROM (SELECT k, s FROM r GROUP BY k, s) GROUP BY k
SELECT k FROM VALUES (1), (2) AS t(k)
SELECT r.k, t.n FROM r JOIN (VALUES (1, 'a'), (2, 'b')) AS t(k, n) ON r.k = t.k
FROM r SELECT k, v
SELECT k, v FROM r SORT BY k
SELECT k FROM r WHERE d = current_date
SELECT "k" AS c FROM r
SELECT t.k AS k1, t2.k AS k2 FROM r t JOIN r t2 ON t.k = t2.v
SELECT k, avg(c) AS ac FROM (SELECT k, d, count(*) AS c FROM r GROUP BY k, d) q GROUP BY k
SELECT k, sum(sum(v)) OVER (PARTITION BY k) AS x FROM r GROUP BY k, s
SELECT k, count(*) AS c FROM r GROUP BY k HAVING sum(v) > (SELECT avg(w) FROM o)
SELECT CASE WHEN EXISTS (SELECT 1 FROM o WHERE o.k = r.k) THEN 1 ELSE 0 END AS has FROM r
""".strip().splitlines()

QUERIES = [
    *(f"SELECT k, {scalar} AS c FROM r" for scalar in SCALARS),
    *(f"SELECT k, {aggregate} AS c FROM r GROUP BY k" for aggregate in AGGREGATES),
    *SHAPES,
]
