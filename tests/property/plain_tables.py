"""Random Delta tables made without Spark, and their rows as a list: types, odd values, features,
pasts. Written from the protocol's text, with nothing of the code that is tested."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
EARLY, BEFORE_1970, IN_2038, LATE = map(
    datetime.fromisoformat,
    (
        "0001-01-01",
        "1969-12-31T23:59:59.999999",
        "2038-01-19T03:14:07",
        "9999-12-31T23:59:59.999999",
    ),
)
KEYS: dict[str, list[Any]] = {
    "byte": [-128, 127, 0],
    "short": [-32768, 7],
    "integer": [-(2**31), 2**31 - 1, 0, 7],
    "long": [-(2**63), 2**63 - 1, 12],
    "decimal(5,2)": [Decimal("-999.99"), Decimal("1.25")],
    "decimal(38,18)": [Decimal("0.123456789012345678"), Decimal("-5.000000000000000000")],
    "string": ["", "b", "a" * 40, "z" * 32 + "\U0010ffff!", "ü'\\ /=", "a.b%20c"],
    "date": [date(1, 1, 1), date(1582, 10, 4), date(9999, 12, 31)],
    "timestamp": [t.replace(tzinfo=UTC) for t in (EARLY, BEFORE_1970, LATE)],
    "timestamp_ntz": [EARLY, IN_2038],
    "boolean": [True, False],
    "binary": [b"\x00\xff", b""],
}
NAN = float("nan")
FLOATS = {
    "double": [NAN, float("inf"), float("-inf"), -0.0, 0.1, 1e300],
    "float": [NAN, 0.5, -3.5, 0.0],
}
PAIR = {"type": "struct", "fields": [("c", "string"), ("d", "double")]}
NESTED = [
    {"type": "struct", "fields": [("a", "integer"), ("b", PAIR)]},
    {"type": "array", "elementType": {"type": "struct", "fields": [("x", "long")]}},
    {"type": "map", "keyType": "string", "valueType": {"type": "array", "elementType": "date"}},
]
ARROW = {
    "byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64(),
    "decimal(5,2)": pa.decimal128(5, 2), "decimal(38,18)": pa.decimal128(38, 18),
    "decimal(12,4)": pa.decimal128(12, 4), "string": pa.string(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
    "boolean": pa.bool_(), "binary": pa.binary(), "double": pa.float64(), "float": pa.float32(),
}  # fmt: skip
WIDER = {
    "byte": ("short", "integer", "long", "double"), "short": ("long",), "integer": ("long",),
    "float": ("double",), "date": ("timestamp_ntz",), "decimal(5,2)": ("decimal(12,4)",),
}  # fmt: skip
PARTS: dict[str, list[str | None]] = {  # as the log has them
    "string": ["a/b=c %", "ü:?", "__HIVE_DEFAULT_PARTITION__x", None],
    "integer": ["1", "-5", None],
    "date": ["1900-01-01", "2020-01-01"],
    "timestamp": ["2020-01-01 00:00:00.5", "1999-12-31T23:59:59.000000Z"],
}


@dataclass
class Column:
    """A column, or a field of a struct."""

    name: str
    kind: Any  # a name, or the protocol's JSON with `Column`s as fields
    physical: str
    number: int

    def json(self, mapped: bool) -> dict[str, Any]:
        known = {
            "delta.columnMapping.id": self.number,
            "delta.columnMapping.physicalName": self.physical,
        }
        return {
            "name": self.name,
            "type": _json(self.kind, mapped),
            "nullable": True,
            "metadata": known if mapped else {},
        }

    def arrow(self, mapped: bool) -> pa.Field:
        known = {"PARQUET:field_id": str(self.number)} if mapped else None
        return pa.field(self.physical, _arrow(self.kind, mapped), metadata=known)


def _json(kind: Any, mapped: bool) -> Any:
    if isinstance(kind, str):
        return kind
    made = {k: v if k == "type" else _json(v, mapped) for k, v in kind.items() if k != "fields"}
    if "fields" in kind:
        made["fields"] = [column.json(mapped) for column in kind["fields"]]
    nulls = {"array": "containsNull", "map": "valueContainsNull"}.get(kind["type"])
    return made | ({nulls: True} if nulls else {})


def _arrow(kind: Any, mapped: bool) -> pa.DataType:
    if isinstance(kind, str):
        return ARROW[kind]
    if kind["type"] == "struct":
        return pa.struct([column.arrow(mapped) for column in kind["fields"]])
    if kind["type"] == "array":
        return pa.list_(pa.field("element", _arrow(kind["elementType"], mapped)))
    return pa.map_(_arrow(kind["keyType"], mapped), _arrow(kind["valueType"], mapped))


@dataclass
class Table:
    """A table that is being made; `live` are its files with the rows that are left in them."""

    root: Path
    draw: Random
    mapping: str
    tracked: bool
    columns: list[Column] = field(default_factory=list)
    parts: dict[str, str] = field(default_factory=dict)
    live: list[dict[str, Any]] = field(default_factory=list)
    version: int = -1
    ids: int = 0
    next_row: int = 0
    id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def mapped(self) -> bool:
        return self.mapping != "none"

    def column(self, kind: Any, name: str | None = None) -> Column:
        self.ids += 1
        number = self.ids
        if isinstance(kind, dict):
            kind = dict(kind)
            for part in ("elementType", "keyType", "valueType"):
                if isinstance(kind.get(part), dict):
                    kind[part] = self.column(kind[part]).kind
            if "fields" in kind:
                kind["fields"] = [self.column(inner, called) for called, inner in kind["fields"]]
        called = name or f"c{number}"
        return Column(called, kind, f"col-{uuid4()}" if self.mapped else called, number)

    @property
    def physical(self) -> pa.Schema:
        return pa.schema([column.arrow(self.mapped) for column in self.columns])

    # The log

    def commit(self, actions: Iterable[Mapping[str, Any]]) -> None:
        self.version += 1
        lines = [json.dumps(action) for action in actions]
        (self.root / "_delta_log").mkdir(parents=True, exist_ok=True)
        path = self.root / "_delta_log" / f"{self.version:020}.json"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def protocol(self) -> dict[str, Any]:
        read = ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"]
        also = ["appendOnly", "invariants", "changeDataFeed", "domainMetadata", "inCommitTimestamp"]
        also += ["rowTracking"] if self.tracked else []
        known = {"minReaderVersion": 3, "minWriterVersion": 7}
        return {"protocol": {**known, "readerFeatures": read, "writerFeatures": read + also}}

    def metadata(self) -> dict[str, Any]:
        parts = [Column(n, k, n, 900 + place) for place, (n, k) in enumerate(self.parts.items())]
        properties = {
            "delta.columnMapping.mode": self.mapping,
            "delta.columnMapping.maxColumnId": "999",
            "delta.enableChangeDataFeed": "true",
            "delta.enableDeletionVectors": "true",
            "delta.enableTypeWidening": "true",
        }
        if self.tracked:
            properties |= {
                "delta.enableRowTracking": "true",
                "delta.rowTracking.materializedRowIdColumnName": "_row-id",
                "delta.rowTracking.materializedRowCommitVersionColumnName": "_row-version",
            }
        schema = [column.json(self.mapped) for column in [*self.columns, *parts]]
        return {
            "metaData": {
                "id": self.id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": schema}),
                "partitionColumns": [*self.parts],
                "configuration": properties,
            }
        }

    # Rows

    def value(self, kind: Any) -> Any:
        if self.draw.random() < 0.15:
            return None
        if isinstance(kind, str):
            pool = KEYS.get(kind) or FLOATS.get(kind) or [Decimal("1.2500")]
            return self.draw.choice(pool)
        if kind["type"] == "struct":
            return {inner.physical: self.value(inner.kind) for inner in kind["fields"]}
        size = self.draw.choice([0, 1, 3])
        if kind["type"] == "array":
            return [self.value(kind["elementType"]) for _ in range(size)]
        return [(f"k{n}", self.value(kind["valueType"])) for n in range(size)]

    def add(self, values: Mapping[str, str | None], size: int) -> dict[str, Any]:
        """Write a file; its action comes back."""
        rows = [{c.physical: self.value(c.kind) for c in self.columns} for _ in range(size)]
        schema = self.physical
        ids = [(self.next_row + n, self.version + 1) for n in range(size)]
        own = self.tracked and self.draw.random() < 0.4  # some rows bring ids from elsewhere
        if own:
            ids = [(n + 5_000_000, 0) if self.draw.random() < 0.5 else (n, v) for n, v in ids]
            schema = schema.append(pa.field("_row-id", pa.int64()))
            schema = schema.append(pa.field("_row-version", pa.int64()))
        kept = [{"_row-id": n, "_row-version": v} if own and n >= 5_000_000 else {} for n, v in ids]
        table = pa.Table.from_pylist([{**r, **k} for r, k in zip(rows, kept, strict=True)], schema)
        folder = "/".join(f"{name}={_escaped(value)}" for name, value in values.items())
        path = f"{folder}/{uuid4()}.parquet" if folder else f"{uuid4()}.parquet"
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        old_times = not any(column.kind == "timestamp_ntz" for column in self.columns)
        hinted = self.draw.random() < 0.3  # as pandas, Polars and delta-rs write them
        if hinted:
            table = table.cast(pa.schema([held_otherwise(f, self.draw) for f in schema]))
        pq.write_table(
            table,
            self.root / path,
            row_group_size=self.draw.choice([3, 1000]),
            use_deprecated_int96_timestamps=old_times and self.draw.random() < 0.5,
            store_schema=hinted,
        )
        action = {
            "path": quote(path, safe="/=-_.~!$&'()*+,;:@"),
            "partitionValues": dict(values),
            "size": (self.root / path).stat().st_size,
            "modificationTime": 1,
            "dataChange": True,
            "stats": self.statistics(rows) if self.draw.random() < 0.8 else None,
            "baseRowId": self.next_row if self.tracked else None,
            "defaultRowCommitVersion": self.version + 1 if self.tracked else None,
        }
        self.next_row += size
        action = {key: value for key, value in action.items() if value is not None}
        known = [{**r, "ids": i if self.tracked else None} for r, i in zip(rows, ids, strict=True)]
        self.live.append({"action": action, "rows": dict(enumerate(known))})
        return {"add": action}

    def statistics(self, rows: list[dict[str, Any]]) -> str:
        plain = [column for column in self.columns if isinstance(column.kind, str)]
        nulls = {c.physical: sum(row[c.physical] is None for row in rows) for c in plain}
        return json.dumps({"numRecords": len(rows), "nullCount": nulls})

    def mark(self) -> dict[str, Any]:
        return {
            "domainMetadata": {
                "domain": "delta.rowTracking",
                "configuration": json.dumps({"rowIdHighWaterMark": self.next_row - 1}),
                "removed": False,
            }
        }

    def delete(self) -> None:
        """Mark some rows of some files; of a file that was marked before, more of them."""
        actions: list[dict[str, Any]] = []
        for file in self.live:
            gone = [n for n in file["rows"] if self.draw.random() < 0.4]
            if not gone or self.draw.random() < 0.3:
                continue
            for position in gone:
                del file["rows"][position]
            old = file["action"]
            known = file.setdefault("gone", BitMap64())
            known |= BitMap64(gone)
            told = json.loads(old.get("stats", "{}")) | {"tightBounds": False}
            new = {**old, "deletionVector": self.vector(known), "stats": json.dumps(told)}
            actions += [{"add": new}, {"remove": {**old, "deletionTimestamp": 1}}]
            file["action"] = new
        self.commit(actions)

    def vector(self, gone: BitMap64) -> dict[str, Any]:
        content = struct.pack("<i", 1681511377) + gone.serialize()
        told = {"sizeInBytes": len(content), "cardinality": len(gone)}
        if self.draw.random() < 0.5:
            padded = content + bytes(-len(content) % 4)
            return {"storageType": "i", "pathOrInlineDv": _z85(padded), **told}
        name, folder = uuid4(), self.draw.choice(["", "ab"])
        before = b"\x01" + bytes(self.draw.randrange(9))
        framed = struct.pack(">i", len(content)) + content + struct.pack(">I", zlib.crc32(content))
        path = self.root / folder / f"deletion_vector_{name}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(before + framed)
        place = f"{folder}{_z85(name.bytes)}"
        return {"storageType": "u", "pathOrInlineDv": place, "offset": len(before), **told}

    def alter(self) -> dict[str, Any]:
        """Columns come, are widened, and where files have names of their own, renamed."""
        for place, column in enumerate(self.columns):
            wider = WIDER.get(column.kind) if isinstance(column.kind, str) else None
            if wider and self.draw.random() < 0.5:
                fit = [kind for kind in wider if place or kind != "double"]  # of the key
                column.kind = self.draw.choice(fit)
        if self.draw.random() < 0.5:
            self.columns.append(self.column(self.draw.choice([*KEYS, *FLOATS, *NESTED])))
        if self.mapped:
            self.columns[-1].name = "renamed, (twice)"
        for column in self.columns:
            if isinstance(column.kind, dict) and "fields" in column.kind:
                column.kind = {**column.kind}
                column.kind["fields"] = [*column.kind["fields"], self.column("double", "more")]
        return self.metadata()

    def checkpoint(self) -> None:
        """All that stands, in one of the forms; older commits may be gone."""
        stands = [self.protocol(), self.metadata(), *({"add": f["action"]} for f in self.live)]
        stands += [self.mark()] if self.tracked else []
        log, name = self.root / "_delta_log", f"{self.version:020}.checkpoint"
        form = self.draw.choice(["classic", "parts", "v2 json", "v2 parquet"])
        counts = self.draw.random() < 0.4
        if form == "classic":
            _write_actions(log / f"{name}.parquet", stands, counts=counts)
        elif form == "parts":
            for n, some in enumerate((stands[:3], stands[3:]), 1):
                _write_actions(log / f"{name}.{n:010}.{2:010}.parquet", some, counts=counts)
        else:
            side = f"{uuid4()}.parquet"
            (log / "_sidecars").mkdir(exist_ok=True)
            adds = [action for action in stands if "add" in action]
            _write_actions(log / "_sidecars" / side, adds, counts=counts)
            top = [a for a in stands if "add" not in a]
            top.append({"checkpointMetadata": {"version": self.version}})
            size = (log / "_sidecars" / side).stat().st_size
            top.append({"sidecar": {"path": side, "sizeInBytes": size, "modificationTime": 1}})
            if form == "v2 json":
                lines = "\n".join(map(json.dumps, top))
                (log / f"{name}.{uuid4()}.json").write_text(lines, encoding="utf-8")
            else:
                _write_actions(log / f"{name}.{uuid4()}.parquet", top)
        if self.draw.random() < 0.5:
            for n in range(self.version):
                (log / f"{n:020}.json").unlink(missing_ok=True)

    def rows_by_partition(self) -> dict[str, Counter[str]]:
        """All rows as text, by partition values; in the types that the table has now."""
        found: dict[str, Counter[str]] = {}
        for file in self.live:
            rows = [*file["rows"].values()]
            ids = [row["ids"] for row in rows]
            bare = [
                {c.physical: as_now(row.get(c.physical), c.kind) for c in self.columns}
                for row in rows
            ]
            table = pa.Table.from_pylist(bare, self.physical)
            key = json.dumps(file["action"]["partitionValues"], sort_keys=True)
            pairs = zip(table.to_pylist(), ids, strict=True)
            found.setdefault(key, Counter()).update(repr(pair) for pair in pairs)
        return found


HELD: dict[pa.DataType, list[pa.DataType]] = {
    pa.string(): [pa.large_string(), pa.dictionary(pa.int16(), pa.string())],
    pa.binary(): [pa.large_binary()],
    pa.timestamp("us", "UTC"): [pa.timestamp("us", "Asia/Kolkata"), pa.timestamp("us", "+01:30")],
}


def held_otherwise(column: pa.Field, draw: Random) -> pa.Field:
    """The same values in another Arrow type, which a file tells its readers as a hint."""
    kind = column.type
    if pa.types.is_struct(kind):
        fields = [held_otherwise(kind.field(n), draw) for n in range(kind.num_fields)]
        return column.with_type(pa.struct(fields))
    if pa.types.is_list(kind):
        make = draw.choice([pa.list_, pa.large_list])
        return column.with_type(make(held_otherwise(kind.value_field, draw)))
    if pa.types.is_map(kind):
        return column.with_type(pa.map_(kind.key_type, held_otherwise(kind.item_field, draw)))
    return column.with_type(draw.choice([kind, *HELD.get(kind, [])]))


def as_now(value: Any, kind: Any) -> Any:
    """A day that became an instant is its midnight."""
    early = kind == "timestamp_ntz" and isinstance(value, date) and not isinstance(value, datetime)
    return datetime.fromisoformat(value.isoformat()) if early else value


MAP, TEXT, LONG = pa.map_(pa.string(), pa.string()), pa.string(), pa.int64()
ACTIONS = pa.schema([
    ("protocol", pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(TEXT)), ("writerFeatures", pa.list_(TEXT))])),
    ("metaData", pa.struct([("id", TEXT), ("schemaString", TEXT),
        ("format", pa.struct([("provider", TEXT), ("options", MAP)])),
        ("partitionColumns", pa.list_(TEXT)), ("configuration", MAP)])),
    ("add", pa.struct([("path", TEXT), ("partitionValues", MAP), ("size", LONG),
        ("modificationTime", LONG), ("dataChange", pa.bool_()), ("stats", TEXT), ("tags", MAP),
        ("deletionVector", pa.struct([("storageType", TEXT), ("pathOrInlineDv", TEXT),
            ("offset", pa.int32()), ("sizeInBytes", pa.int32()), ("cardinality", LONG)])),
        ("baseRowId", LONG), ("defaultRowCommitVersion", LONG)])),
    ("domainMetadata", pa.struct([("domain", TEXT), ("configuration", TEXT),
        ("removed", pa.bool_())])),
    ("checkpointMetadata", pa.struct([("version", LONG)])),
    ("sidecar", pa.struct([("path", TEXT), ("sizeInBytes", LONG), ("modificationTime", LONG)])),
])  # fmt: skip


def _write_actions(path: Path, actions: list[dict[str, Any]], *, counts: bool = False) -> None:
    """`counts`: statistics in columns instead of text."""

    def as_pairs(action: dict[str, Any]) -> dict[str, Any]:
        maps = ("partitionValues", "configuration")
        return {
            name: {
                k: [*v.items()] if k in maps and isinstance(v, dict) else v for k, v in body.items()
            }
            for name, body in action.items()
        }

    table = pa.Table.from_pylist([as_pairs(a) for a in actions], ACTIONS)
    pq.write_table(_with_counts(table) if counts else table, path)


def _with_counts(table: pa.Table) -> pa.Table:
    """As Delta writes it by `delta.checkpoint.writeStatsAsStruct` without `writeStatsAsJson`."""
    adds = table.column("add").combine_chunks()
    texts = adds.field("stats").to_pylist()
    parsed = [json.loads(text) if text else None for text in texts]
    if not any(told and told.get("nullCount") for told in parsed):
        return table  # Parquet knows no empty structs
    inner = {f.name: adds.field(f.name) for f in adds.type if f.name != "stats"}
    inner["stats_parsed"] = pa.array(parsed)
    made = pa.StructArray.from_arrays([*inner.values()], [*inner], mask=adds.is_null())
    return table.set_column(table.schema.get_field_index("add"), "add", made)


def _z85(content: bytes) -> str:
    return base64.b85encode(content).decode().translate(str.maketrans(B85, Z85))


def _escaped(value: str | None) -> str:
    """As Hive writes them in folders."""
    if value is None:
        return "__HIVE_DEFAULT_PARTITION__"
    return "".join(f"%{ord(c):02X}" if c in "\"#%'*/:=?\\{[]^" else c for c in value)


def random_table(root: Path, seed: int) -> Table:
    """A table by its seed, with a past."""
    draw = Random(seed)
    mapping = draw.choice(["none", "none", "name", "id"])
    table = Table(root, draw, mapping, tracked=draw.random() < 0.4)
    table.columns.append(table.column(draw.choice([*KEYS]), "key"))
    for _ in range(draw.randint(1, 4)):
        table.columns.append(table.column(draw.choice([*KEYS, *FLOATS, *NESTED])))
    table.parts = {f"p{n}": draw.choice([*PARTS]) for n in range(draw.choice([0, 0, 1, 2]))}
    table.commit([table.protocol(), table.metadata()])
    for turn in range(2):
        actions = [table.alter()] if turn and draw.random() < 0.6 else []
        for _ in range(draw.randint(1, 4)):
            values = {name: draw.choice(PARTS[kind]) for name, kind in table.parts.items()}
            actions.append(table.add(values, draw.choice([1, 9, 30])))
        table.commit([*actions, *([table.mark()] if table.tracked else [])])
        if draw.random() < 0.5:
            table.delete()
        if draw.random() < 0.4:
            table.checkpoint()
    return table
