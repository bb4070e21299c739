-- view
SELECT id, row_number() OVER (PARTITION BY customer ORDER BY amount, id) AS place FROM orders;

-- duckdb
BEGIN TRANSACTION;

SET VARIABLE "_ivm_before_0" = coalesce(
    (SELECT last_snapshot FROM "dl"."main"."_ivm_cursors" WHERE mv_name = 'mv' AND source_catalog = 'dl'),
    error('mv has no cursor for dl: run initialize_cursors again')
);

SET VARIABLE "_ivm_after_0" = (SELECT id::BIGINT FROM "dl".current_snapshot());

SET VARIABLE "_ivm_after_time" = make_timestamp(epoch_us(now()));

SELECT error('orders was dropped and made again: run initialize_cursors again') FROM ducklake_snapshots('dl')
WHERE snapshot_id > getvariable('_ivm_before_0') AND snapshot_id <= getvariable('_ivm_after_0') AND list_has_any(
    list_transform(changes['tables_created'], lambda x: lower(x)), ['main.orders', 'main."orders"', '"main".orders', '"main"."orders"']);

CREATE OR REPLACE TEMP TABLE "_ivm_feed_s0" AS
SELECT "amount", "customer", "id", CASE WHEN _ivm_change IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS _dt_w FROM ducklake_table_changes('dl', 'main', 'orders', least(getvariable('_ivm_before_0') + 1, getvariable('_ivm_after_0')), getvariable('_ivm_after_0')) AS feed (_ivm_snapshot, _ivm_row, _ivm_change)
WHERE _ivm_snapshot > getvariable('_ivm_before_0');

CREATE OR REPLACE TEMP TABLE "_ivm_rows" AS
SELECT *, 0::BIGINT AS _dt_w FROM "dl"."main"."mv" LIMIT 0;

INSERT INTO temp."_ivm_rows"
WITH _dt_d0 AS (
SELECT "amount" AS "orders.amount", "customer" AS "orders.customer", "id" AS "orders.id", _dt_w FROM temp."_ivm_feed_s0"
),
_dt_k1 AS (
SELECT DISTINCT "orders.customer" AS _dt_k0 FROM _dt_d0
),
_dt_d2 AS (
SELECT "orders.amount", "orders.customer", "orders.id", "_ivm.value", SUM(_dt_w) AS _dt_w FROM (
SELECT "orders.amount", "orders.customer", "orders.id", "_ivm.value", 1 AS _dt_w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "orders.customer" ORDER BY "orders.amount", "orders.id") AS "_ivm.value" FROM (SELECT * FROM (SELECT "amount" AS "orders.amount", "customer" AS "orders.customer", "id" AS "orders.id" FROM "dl"."main"."orders" AT (VERSION => getvariable('_ivm_after_0'))) AS q WHERE EXISTS (SELECT 1 FROM _dt_k1 AS k WHERE k._dt_k0 IS NOT DISTINCT FROM "orders.customer")) AS q) AS q
UNION ALL
SELECT "orders.amount", "orders.customer", "orders.id", "_ivm.value", -1 AS _dt_w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "orders.customer" ORDER BY "orders.amount", "orders.id") AS "_ivm.value" FROM (SELECT * FROM (SELECT "amount" AS "orders.amount", "customer" AS "orders.customer", "id" AS "orders.id" FROM "dl"."main"."orders" AT (VERSION => getvariable('_ivm_before_0'))) AS q WHERE EXISTS (SELECT 1 FROM _dt_k1 AS k WHERE k._dt_k0 IS NOT DISTINCT FROM "orders.customer")) AS q) AS q
) AS q GROUP BY "orders.amount", "orders.customer", "orders.id", "_ivm.value" HAVING SUM(_dt_w) <> 0
),
_dt_d3 AS (
SELECT "orders.id" AS "q.id", "_ivm.value" AS "q.place", _dt_w FROM (SELECT * FROM _dt_d2) AS q
)
SELECT "q.id" AS "id", "q.place" AS "place", _dt_w FROM _dt_d3;

CREATE OR REPLACE TEMP TABLE "_ivm_changes" AS
SELECT * EXCLUDE (_dt_w), sum(_dt_w)::BIGINT AS _ivm_copies FROM (SELECT "id", "place", _dt_w FROM (FROM temp."_ivm_rows")) GROUP BY ALL HAVING sum(_dt_w) <> 0;

SELECT error('mv lacks rows that are to go: run initialize_cursors again') FROM (SELECT 1 FROM temp."_ivm_changes" AS d LEFT JOIN (SELECT "id", "place", count(*) AS _ivm_present FROM "dl"."main"."mv" GROUP BY "id", "place") AS p ON p."id" IS NOT DISTINCT FROM d."id" AND p."place" IS NOT DISTINCT FROM d."place" WHERE d._ivm_copies < 0 AND coalesce(p._ivm_present, 0) < -d._ivm_copies);

DELETE FROM "dl"."main"."mv" WHERE rowid IN (
SELECT rowid FROM (SELECT t.rowid, d._ivm_copies, row_number() OVER (PARTITION BY t."id", t."place") AS _ivm_rank FROM "dl"."main"."mv" t JOIN temp."_ivm_changes" d ON t."id" IS NOT DISTINCT FROM d."id" AND t."place" IS NOT DISTINCT FROM d."place" WHERE d._ivm_copies < 0) WHERE _ivm_rank <= -_ivm_copies
);

INSERT INTO "dl"."main"."mv" ("id", "place")
SELECT "id", "place" FROM (SELECT "id", "place", unnest(range(_ivm_copies)) FROM temp."_ivm_changes" WHERE _ivm_copies > 0);

UPDATE "dl"."main"."_ivm_cursors" SET
    last_snapshot = CASE source_catalog WHEN 'dl' THEN getvariable('_ivm_after_0') END,
    last_time = getvariable('_ivm_after_time')
WHERE mv_name = 'mv' AND (EXISTS (FROM temp."_ivm_feed_s0"));

DROP TABLE temp."_ivm_changes";

DROP TABLE temp."_ivm_feed_s0";

DROP TABLE temp."_ivm_rows";

COMMIT;

-- spark
RESET spark.databricks.delta.write.txnAppId;

RESET spark.databricks.delta.write.txnVersion;

DECLARE OR REPLACE VARIABLE `_ivm_before_0` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_after_0` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_before_time` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_after_time` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_sequence` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_app` STRING;

SET VAR (`_ivm_before_0`, `_ivm_after_0`, `_ivm_before_time`, `_ivm_after_time`, `_ivm_app`, `_ivm_sequence`) = (
SELECT max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    unix_micros(max(last_time)),
    unix_micros(max(pending_time)),
    max(app_id),
    IF(count(*) = 1 AND count(DISTINCT source) = 1, max(sequence), raise_error('mv has not one cursor for each source: run initialize_cursors again'))
FROM `spark_catalog`.`default`.`_ivm_cursors` WHERE mv_name = 'mv'
);

SET VAR (`_ivm_after_0`) = (
SELECT coalesce(`_ivm_after_0`, (SELECT coalesce(max(_commit_version), `_ivm_before_0`) FROM table_changes('`spark_catalog`.`default`.`orders`', `_ivm_before_0`)))
);

UPDATE `spark_catalog`.`default`.`_ivm_cursors` SET
    pending_version = CASE source WHEN '`spark_catalog`.`default`.`orders`' THEN `_ivm_after_0` END,
    pending_time = current_timestamp()
WHERE mv_name = 'mv' AND pending_version IS NULL AND (`_ivm_after_0` > `_ivm_before_0`);

SET VAR (`_ivm_before_0`, `_ivm_after_0`, `_ivm_before_time`, `_ivm_after_time`, `_ivm_app`, `_ivm_sequence`) = (
SELECT max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    unix_micros(max(last_time)),
    unix_micros(max(pending_time)),
    max(app_id),
    IF(count(*) = 1 AND count(DISTINCT source) = 1, max(sequence), raise_error('mv has not one cursor for each source: run initialize_cursors again'))
FROM `spark_catalog`.`default`.`_ivm_cursors` WHERE mv_name = 'mv'
);

DROP VIEW IF EXISTS `_ivm_feed_s0`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_feed_s0` AS
SELECT `amount`, `customer`, `id`, CASE WHEN _change_type IN (\'insert\', \'update_postimage\') THEN 1 ELSE -1 END AS _dt_w FROM table_changes(\'`spark_catalog`.`default`.`orders`\', least(', `_ivm_before_0`, ' + 1, ', `_ivm_after_0`, '), ', `_ivm_after_0`, ')
WHERE _commit_version > ', `_ivm_before_0`));

DROP VIEW IF EXISTS `_ivm_rows`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_rows` AS
SELECT `id`, `place`, SUM(_dt_w) AS _dt_w FROM (
WITH _dt_d0 AS (
SELECT `amount` AS `orders.amount`, `customer` AS `orders.customer`, `id` AS `orders.id`, _dt_w FROM `_ivm_feed_s0`
),
_dt_k1 AS (
SELECT DISTINCT `orders.customer` AS _dt_k0 FROM _dt_d0
),
_dt_d2 AS (
SELECT `orders.amount`, `orders.customer`, `orders.id`, `_ivm.value`, SUM(_dt_w) AS _dt_w FROM (
SELECT `orders.amount`, `orders.customer`, `orders.id`, `_ivm.value`, 1 AS _dt_w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `orders.customer` ORDER BY `orders.amount`, `orders.id`) AS `_ivm.value` FROM (SELECT * FROM (SELECT `amount` AS `orders.amount`, `customer` AS `orders.customer`, `id` AS `orders.id` FROM `spark_catalog`.`default`.`orders` VERSION AS OF ', `_ivm_after_0`, ') AS q WHERE EXISTS (SELECT 1 FROM _dt_k1 AS k WHERE k._dt_k0 IS NOT DISTINCT FROM `orders.customer`)) AS q) AS q
UNION ALL
SELECT `orders.amount`, `orders.customer`, `orders.id`, `_ivm.value`, -1 AS _dt_w FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY `orders.customer` ORDER BY `orders.amount`, `orders.id`) AS `_ivm.value` FROM (SELECT * FROM (SELECT `amount` AS `orders.amount`, `customer` AS `orders.customer`, `id` AS `orders.id` FROM `spark_catalog`.`default`.`orders` VERSION AS OF ', `_ivm_before_0`, ') AS q WHERE EXISTS (SELECT 1 FROM _dt_k1 AS k WHERE k._dt_k0 IS NOT DISTINCT FROM `orders.customer`)) AS q) AS q
) AS q GROUP BY `orders.amount`, `orders.customer`, `orders.id`, `_ivm.value` HAVING SUM(_dt_w) <> 0
),
_dt_d3 AS (
SELECT `orders.id` AS `q.id`, `_ivm.value` AS `q.place`, _dt_w FROM (SELECT * FROM _dt_d2) AS q
)
SELECT `q.id` AS `id`, `q.place` AS `place`, _dt_w FROM _dt_d3
)
GROUP BY `id`, `place` HAVING SUM(_dt_w) <> 0'));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('SET spark.databricks.delta.write.txnAppId = ', `_ivm_app`));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('SET spark.databricks.delta.write.txnVersion = ', `_ivm_sequence`));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', 'MERGE INTO `spark_catalog`.`default`.`mv` AS t USING (
SELECT explode(CASE WHEN _ivm_here < 0 THEN raise_error(\'mv lacks rows that are to go: run initialize_cursors again\')
    WHEN _ivm_here > _ivm_there THEN array_repeat(\'I\', CAST(_ivm_here - _ivm_there AS INT))
    ELSE concat(array(\'D\'), array_repeat(\'I\', CAST(_ivm_here AS INT))) END) AS _ivm_op, `id`, `place` FROM (
SELECT `id`, `place`, SUM(_ivm_here) AS _ivm_here, SUM(_ivm_there) AS _ivm_there FROM (
SELECT `id`, `place`, _dt_w AS _ivm_here, 0 AS _ivm_there FROM `_ivm_rows`
UNION ALL
SELECT v.`id`, v.`place`, 1, 1 FROM `spark_catalog`.`default`.`mv` AS v
LEFT SEMI JOIN `_ivm_rows` AS d ON v.`id` <=> d.`id` AND v.`place` <=> d.`place`
) GROUP BY `id`, `place` HAVING SUM(_ivm_here) <> SUM(_ivm_there))
) AS s ON s._ivm_op = \'D\' AND t.`id` <=> s.`id` AND t.`place` <=> s.`place`
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND s._ivm_op = \'I\' THEN
    INSERT (`id`, `place`) VALUES (s.`id`, s.`place`)');

RESET spark.databricks.delta.write.txnAppId;

RESET spark.databricks.delta.write.txnVersion;

UPDATE `spark_catalog`.`default`.`_ivm_cursors` SET
    last_version = pending_version, pending_version = NULL,
    last_time = pending_time, pending_time = NULL,
    sequence = sequence + 1
WHERE mv_name = 'mv' AND pending_version IS NOT NULL AND sequence = `_ivm_sequence`;

DROP VIEW IF EXISTS `_ivm_feed_s0`;

DROP VIEW IF EXISTS `_ivm_rows`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_before_0`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_after_0`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_before_time`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_after_time`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_sequence`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_app`;
