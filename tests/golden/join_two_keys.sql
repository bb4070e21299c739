-- view
SELECT c.name, o.customer, max(o.amount) AS most FROM orders AS o JOIN customers AS c ON o.customer = c.id GROUP BY c.name, o.customer;

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

SELECT error('customers was dropped and made again: run initialize_cursors again') FROM ducklake_snapshots('dl')
WHERE snapshot_id > getvariable('_ivm_before_0') AND snapshot_id <= getvariable('_ivm_after_0') AND list_has_any(
    list_transform(changes['tables_created'], lambda x: lower(x)), ['main.customers', 'main."customers"', '"main".customers', '"main"."customers"']);

CREATE OR REPLACE TEMP TABLE "_ivm_feed_s0" AS
SELECT "amount", "customer", CASE WHEN _ivm_change IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS _dt_w FROM ducklake_table_changes('dl', 'main', 'orders', least(getvariable('_ivm_before_0') + 1, getvariable('_ivm_after_0')), getvariable('_ivm_after_0')) AS feed (_ivm_snapshot, _ivm_row, _ivm_change)
WHERE _ivm_snapshot > getvariable('_ivm_before_0');

CREATE OR REPLACE TEMP TABLE "_ivm_feed_s1" AS
SELECT "id", "name", CASE WHEN _ivm_change IN ('insert', 'update_postimage') THEN 1 ELSE -1 END AS _dt_w FROM ducklake_table_changes('dl', 'main', 'customers', least(getvariable('_ivm_before_0') + 1, getvariable('_ivm_after_0')), getvariable('_ivm_after_0')) AS feed (_ivm_snapshot, _ivm_row, _ivm_change)
WHERE _ivm_snapshot > getvariable('_ivm_before_0');

CREATE OR REPLACE TEMP TABLE "_ivm_keys" AS
WITH _dt_d0 AS (
SELECT "amount" AS "o.amount", "customer" AS "o.customer", _dt_w FROM temp."_ivm_feed_s0"
),
_dt_d1 AS (
SELECT "id" AS "c.id", "name" AS "c.name", _dt_w FROM temp."_ivm_feed_s1"
),
_dt_d2 AS (
SELECT "o.amount", "o.customer", "c.id", "c.name", l._dt_w FROM (SELECT * FROM _dt_d0) AS l JOIN (SELECT "id" AS "c.id", "name" AS "c.name" FROM "dl"."main"."customers" AT (VERSION => getvariable('_ivm_after_0'))) AS r ON "o.customer" = "c.id"
UNION ALL
SELECT "o.amount", "o.customer", "c.id", "c.name", r._dt_w FROM (SELECT "amount" AS "o.amount", "customer" AS "o.customer" FROM "dl"."main"."orders" AT (VERSION => getvariable('_ivm_before_0'))) AS l JOIN (SELECT * FROM _dt_d1) AS r ON "o.customer" = "c.id"
),
_dt_k3 AS (
SELECT DISTINCT "c.name" AS _dt_k0, "o.customer" AS _dt_k1 FROM _dt_d2
)
SELECT * FROM _dt_k3;

CREATE OR REPLACE TEMP TABLE "_ivm_rows" AS
FROM "dl"."main"."mv" LIMIT 0;

INSERT INTO temp."_ivm_rows"
SELECT "q.name" AS "name", "q.customer" AS "customer", "q.most" AS "most" FROM (SELECT "_ivm.key" AS "q.name", "_ivm.key_2" AS "q.customer", "_ivm.value" AS "q.most" FROM (SELECT "c.name" AS "_ivm.key", "o.customer" AS "_ivm.key_2", MAX("o.amount") AS "_ivm.value" FROM (SELECT * FROM (SELECT "o.amount", "o.customer", "c.id", "c.name" FROM (SELECT * FROM (SELECT "amount" AS "o.amount", "customer" AS "o.customer" FROM "dl"."main"."orders" AT (VERSION => getvariable('_ivm_after_0'))) AS q WHERE EXISTS (SELECT 1 FROM temp."_ivm_keys" AS k WHERE k._dt_k1 IS NOT DISTINCT FROM "o.customer")) AS l JOIN (SELECT * FROM (SELECT "id" AS "c.id", "name" AS "c.name" FROM "dl"."main"."customers" AT (VERSION => getvariable('_ivm_after_0'))) AS q WHERE EXISTS (SELECT 1 FROM temp."_ivm_keys" AS k WHERE k._dt_k0 IS NOT DISTINCT FROM "c.name")) AS r ON "o.customer" = "c.id") AS q WHERE EXISTS (SELECT 1 FROM temp."_ivm_keys" AS k WHERE k._dt_k0 IS NOT DISTINCT FROM "c.name" AND k._dt_k1 IS NOT DISTINCT FROM "o.customer")) AS q GROUP BY "c.name", "o.customer") AS q) AS q;

CREATE OR REPLACE TEMP TABLE "_ivm_changes" AS
SELECT "name", "customer", "most", sum(_ivm_copies)::BIGINT AS _ivm_copies FROM (SELECT "name", "customer", "most", 1 AS _ivm_copies FROM temp."_ivm_rows" UNION ALL SELECT "name", "customer", "most", -1 AS _ivm_copies FROM (SELECT * FROM "dl"."main"."mv" AS v WHERE EXISTS (SELECT 1 FROM temp."_ivm_keys" AS k WHERE k._dt_k0 IS NOT DISTINCT FROM v."name" AND k._dt_k1 IS NOT DISTINCT FROM v."customer"))) GROUP BY "name", "customer", "most" HAVING sum(_ivm_copies) <> 0;

DELETE FROM "dl"."main"."mv" WHERE rowid IN (
SELECT rowid FROM (SELECT t.rowid, d._ivm_copies, row_number() OVER (PARTITION BY t."name", t."customer", t."most") AS _ivm_rank FROM "dl"."main"."mv" t JOIN temp."_ivm_changes" d ON t."name" IS NOT DISTINCT FROM d."name" AND t."customer" IS NOT DISTINCT FROM d."customer" AND t."most" IS NOT DISTINCT FROM d."most" WHERE d._ivm_copies < 0) WHERE _ivm_rank <= -_ivm_copies
);

INSERT INTO "dl"."main"."mv" ("name", "customer", "most")
SELECT "name", "customer", "most" FROM (SELECT "name", "customer", "most", unnest(range(_ivm_copies)) FROM temp."_ivm_changes" WHERE _ivm_copies > 0);

UPDATE "dl"."main"."_ivm_cursors" SET
    last_snapshot = CASE source_catalog WHEN 'dl' THEN getvariable('_ivm_after_0') END,
    last_time = getvariable('_ivm_after_time')
WHERE mv_name = 'mv' AND (EXISTS (FROM temp."_ivm_feed_s0") OR EXISTS (FROM temp."_ivm_feed_s1"));

DROP TABLE temp."_ivm_changes";

DROP TABLE temp."_ivm_feed_s0";

DROP TABLE temp."_ivm_feed_s1";

DROP TABLE temp."_ivm_keys";

DROP TABLE temp."_ivm_rows";

COMMIT;

-- spark
RESET spark.databricks.delta.write.txnAppId;

RESET spark.databricks.delta.write.txnVersion;

DECLARE OR REPLACE VARIABLE `_ivm_before_0` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_before_1` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_after_0` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_after_1` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_before_time` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_after_time` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_sequence` BIGINT;

DECLARE OR REPLACE VARIABLE `_ivm_app` STRING;

SET VAR (`_ivm_before_0`, `_ivm_after_0`, `_ivm_before_1`, `_ivm_after_1`, `_ivm_before_time`, `_ivm_after_time`, `_ivm_app`, `_ivm_sequence`) = (
SELECT max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`customers`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`customers`'),
    unix_micros(max(last_time)),
    unix_micros(max(pending_time)),
    max(app_id),
    IF(count(*) = 2 AND count(DISTINCT source) = 2, max(sequence), raise_error('mv has not one cursor for each source: run initialize_cursors again'))
FROM `spark_catalog`.`default`.`_ivm_cursors` WHERE mv_name = 'mv'
);

SET VAR (`_ivm_after_0`, `_ivm_after_1`) = (
SELECT coalesce(`_ivm_after_0`, (SELECT coalesce(max(_commit_version), `_ivm_before_0`) FROM table_changes('`spark_catalog`.`default`.`orders`', `_ivm_before_0`))),
    coalesce(`_ivm_after_1`, (SELECT coalesce(max(_commit_version), `_ivm_before_1`) FROM table_changes('`spark_catalog`.`default`.`customers`', `_ivm_before_1`)))
);

UPDATE `spark_catalog`.`default`.`_ivm_cursors` SET
    pending_version = CASE source WHEN '`spark_catalog`.`default`.`orders`' THEN `_ivm_after_0` WHEN '`spark_catalog`.`default`.`customers`' THEN `_ivm_after_1` END,
    pending_time = current_timestamp()
WHERE mv_name = 'mv' AND pending_version IS NULL AND (`_ivm_after_0` > `_ivm_before_0` OR `_ivm_after_1` > `_ivm_before_1`);

SET VAR (`_ivm_before_0`, `_ivm_after_0`, `_ivm_before_1`, `_ivm_after_1`, `_ivm_before_time`, `_ivm_after_time`, `_ivm_app`, `_ivm_sequence`) = (
SELECT max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`orders`'),
    max(last_version) FILTER (WHERE source = '`spark_catalog`.`default`.`customers`'),
    max(pending_version) FILTER (WHERE source = '`spark_catalog`.`default`.`customers`'),
    unix_micros(max(last_time)),
    unix_micros(max(pending_time)),
    max(app_id),
    IF(count(*) = 2 AND count(DISTINCT source) = 2, max(sequence), raise_error('mv has not one cursor for each source: run initialize_cursors again'))
FROM `spark_catalog`.`default`.`_ivm_cursors` WHERE mv_name = 'mv'
);

DROP VIEW IF EXISTS `_ivm_feed_s0`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_feed_s0` AS
SELECT `amount`, `customer`, CASE WHEN _change_type IN (\'insert\', \'update_postimage\') THEN 1 ELSE -1 END AS _dt_w FROM table_changes(\'`spark_catalog`.`default`.`orders`\', least(', `_ivm_before_0`, ' + 1, ', `_ivm_after_0`, '), ', `_ivm_after_0`, ')
WHERE _commit_version > ', `_ivm_before_0`));

DROP VIEW IF EXISTS `_ivm_feed_s1`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_feed_s1` AS
SELECT `id`, `name`, CASE WHEN _change_type IN (\'insert\', \'update_postimage\') THEN 1 ELSE -1 END AS _dt_w FROM table_changes(\'`spark_catalog`.`default`.`customers`\', least(', `_ivm_before_1`, ' + 1, ', `_ivm_after_1`, '), ', `_ivm_after_1`, ')
WHERE _commit_version > ', `_ivm_before_1`));

DROP VIEW IF EXISTS `_ivm_keys`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_keys` AS
WITH _dt_d0 AS (
SELECT `amount` AS `o.amount`, `customer` AS `o.customer`, _dt_w FROM `_ivm_feed_s0`
),
_dt_d1 AS (
SELECT `id` AS `c.id`, `name` AS `c.name`, _dt_w FROM `_ivm_feed_s1`
),
_dt_d2 AS (
SELECT `o.amount`, `o.customer`, `c.id`, `c.name`, l._dt_w FROM (SELECT * FROM _dt_d0) AS l JOIN (SELECT `id` AS `c.id`, `name` AS `c.name` FROM `spark_catalog`.`default`.`customers` VERSION AS OF ', `_ivm_after_1`, ') AS r ON `o.customer` = `c.id`
UNION ALL
SELECT `o.amount`, `o.customer`, `c.id`, `c.name`, r._dt_w FROM (SELECT `amount` AS `o.amount`, `customer` AS `o.customer` FROM `spark_catalog`.`default`.`orders` VERSION AS OF ', `_ivm_before_0`, ') AS l JOIN (SELECT * FROM _dt_d1) AS r ON `o.customer` = `c.id`
),
_dt_k3 AS (
SELECT DISTINCT `c.name` AS _dt_k0, `o.customer` AS _dt_k1 FROM _dt_d2
)
SELECT * FROM _dt_k3'));

DROP VIEW IF EXISTS `_ivm_rows`;

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('CACHE TABLE `_ivm_rows` AS
SELECT `q.name` AS `name`, `q.customer` AS `customer`, `q.most` AS `most` FROM (SELECT `_ivm.key` AS `q.name`, `_ivm.key_2` AS `q.customer`, `_ivm.value` AS `q.most` FROM (SELECT `c.name` AS `_ivm.key`, `o.customer` AS `_ivm.key_2`, MAX(`o.amount`) AS `_ivm.value` FROM (SELECT * FROM (SELECT `o.amount`, `o.customer`, `c.id`, `c.name` FROM (SELECT * FROM (SELECT `amount` AS `o.amount`, `customer` AS `o.customer` FROM `spark_catalog`.`default`.`orders` VERSION AS OF ', `_ivm_after_0`, ') AS q WHERE EXISTS (SELECT 1 FROM `_ivm_keys` AS k WHERE k._dt_k1 IS NOT DISTINCT FROM `o.customer`)) AS l JOIN (SELECT * FROM (SELECT `id` AS `c.id`, `name` AS `c.name` FROM `spark_catalog`.`default`.`customers` VERSION AS OF ', `_ivm_after_1`, ') AS q WHERE EXISTS (SELECT 1 FROM `_ivm_keys` AS k WHERE k._dt_k0 IS NOT DISTINCT FROM `c.name`)) AS r ON `o.customer` = `c.id`) AS q WHERE EXISTS (SELECT 1 FROM `_ivm_keys` AS k WHERE k._dt_k0 IS NOT DISTINCT FROM `c.name` AND k._dt_k1 IS NOT DISTINCT FROM `o.customer`)) AS q GROUP BY `c.name`, `o.customer`) AS q) AS q'));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('SET spark.databricks.delta.write.txnAppId = ', `_ivm_app`));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', concat('SET spark.databricks.delta.write.txnVersion = ', `_ivm_sequence`));

EXECUTE IMMEDIATE IF(`_ivm_after_0` IS NULL, 'SELECT 1', 'MERGE INTO `spark_catalog`.`default`.`mv` AS t USING (
SELECT explode(CASE WHEN _ivm_here < 0 THEN raise_error(\'mv lacks rows that are to go: run initialize_cursors again\')
    WHEN _ivm_here > _ivm_there THEN array_repeat(\'I\', CAST(_ivm_here - _ivm_there AS INT))
    ELSE concat(array(\'D\'), array_repeat(\'I\', CAST(_ivm_here AS INT))) END) AS _ivm_op, `name`, `customer`, `most` FROM (
SELECT `name`, `customer`, `most`, SUM(_ivm_here) AS _ivm_here, SUM(_ivm_there) AS _ivm_there FROM (
SELECT `name`, `customer`, `most`, 1 AS _ivm_here, 0 AS _ivm_there FROM `_ivm_rows`
UNION ALL
SELECT v.`name`, v.`customer`, v.`most`, 0, 1 FROM `spark_catalog`.`default`.`mv` AS v LEFT SEMI JOIN `_ivm_keys` AS k ON v.`name` <=> k._dt_k0 AND v.`customer` <=> k._dt_k1
) GROUP BY `name`, `customer`, `most` HAVING SUM(_ivm_here) <> SUM(_ivm_there))
) AS s ON s._ivm_op = \'D\' AND t.`name` <=> s.`name` AND t.`customer` <=> s.`customer` AND t.`most` <=> s.`most`
WHEN MATCHED THEN DELETE
WHEN NOT MATCHED AND s._ivm_op = \'I\' THEN
    INSERT (`name`, `customer`, `most`) VALUES (s.`name`, s.`customer`, s.`most`)');

RESET spark.databricks.delta.write.txnAppId;

RESET spark.databricks.delta.write.txnVersion;

UPDATE `spark_catalog`.`default`.`_ivm_cursors` SET
    last_version = pending_version, pending_version = NULL,
    last_time = pending_time, pending_time = NULL,
    sequence = sequence + 1
WHERE mv_name = 'mv' AND pending_version IS NOT NULL AND sequence = `_ivm_sequence`;

DROP VIEW IF EXISTS `_ivm_feed_s0`;

DROP VIEW IF EXISTS `_ivm_feed_s1`;

DROP VIEW IF EXISTS `_ivm_keys`;

DROP VIEW IF EXISTS `_ivm_rows`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_before_0`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_before_1`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_after_0`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_after_1`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_before_time`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_after_time`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_sequence`;

DROP TEMPORARY VARIABLE IF EXISTS `_ivm_app`;
