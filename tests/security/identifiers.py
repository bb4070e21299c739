# ruff: noqa: E501, RUF001  tables of cases read best with one case a line
"""Three hundred names that somebody will use, by accident or on purpose. The list never changes by itself."""

from __future__ import annotations

import re

KEYWORDS = [
    "select",
    "from",
    "where",
    "group",
    "order",
    "by",
    "table",
    "view",
    "join",
    "on",
    "using",
    "union",
    "values",
    "null",
    "true",
    "false",
    "case",
    "when",
    "then",
    "end",
    "as",
    "with",
    "lateral",
    "pivot",
    "insert",
    "delete",
    "update",
    "merge",
    "drop",
    "create",
    "alter",
    "dynamic",
    "refresh",
    "cascade",
    "version",
    "timestamp",
    "identifier",
    "current_date",
    "current_timestamp",
    "localtimestamp",
    "now",
    "interval",
    "array",
    "map",
    "struct",
    "default",
    "delta",
]
CASES = [
    "Order_Id",
    "ORDER_KEY",
    "camelCase",
    "MiXeD_cAsE",
    "straße",
    "İstanbul",
    "ǅ",
    "Ωmega",
    "ſharp",
]
PUNCTUATION = list(" !\"#$%&'()*+,-./:;<=>?@[\\]^`{|}~")
INSIDE = [f"in{sign}side" for sign in PUNCTUATION]
AT_THE_ENDS = [f"{sign}x{sign}" for sign in "`'\".;-$\\ "]
SPACES = [
    "two words", "  led by spaces", "trailed  ", "tab\there", "line\nfeed", "carriage\rreturn", "\n", "\t", "   ",
    "no\u00a0break", "em\u2003space", "line\u2028separator", "ideographic\u3000space", "vertical\x0btab", "form\x0cfeed",
]  # fmt: skip
QUOTES = [
    "``", "a``b", "`a`", "'a'", '"a"', "it's", "''", '""', "`;`", "\\`", "\\'", "a\\", "\\\\", "\\n", "\\u0041", "\\0",
    "r'raw'", "$$", "‘curly’", "“curly”", "«angle»", "´", "ˋ", "＇", "｀",
]  # fmt: skip
COMMENTS = [
    "--",
    "-- x",
    "/*",
    "*/",
    "/* x */",
    "/*+ hint */",
    "#",
    "//",
    "--\n",
    "a/**/b",
    "<!--",
    ";--",
]
INJECTIONS = [
    "x; DROP TABLE orders", "x`; DROP TABLE orders; --", "x' OR '1'='1", 'x" OR "1"="1', "1 OR 1=1", "x) AS y --",
    "x` INT) USING delta; --", "'); DROP TABLE orders; --", "x UNION SELECT * FROM orders", "x', 'y' = 'z", "`.`", "`.`.`",
    "x VERSION AS OF 0", "orders@v0", "x' --", "\\'; DROP TABLE orders; --", "x`` y", "*", "a.*", "?", ":p", ":1",
    "robert'); DROP TABLE students;--", "x AS SELECT 1", "TARGET_LAG = '1 s'", "x COMMENT 'y'", "$(id)", "`id`", "|| id",
]  # fmt: skip
SUBSTITUTED = ["${spark.app.name}", "${env:HOME}", "a${x}b", "${system:user.home}", "${hiveconf:a}"]
FORMATS = [
    "%s",
    "%d",
    "%(x)s",
    "{}",
    "{0}",
    "{x}",
    "100%",
    "%%",
    "$1",
    "$x",
    "%2e%2e%2f",
    "&amp;",
    "<b>",
    "{{x}}",
]
PATHS = [
    "../../x", "..", ".", "./x", "/etc/passwd", "/", "//", "a/b", "..\\..\\x", "C:\\x", "file:/etc/passwd", "s3a://b/x",
    "~", "~/x", "_delta_log", "_change_data", "x=1", ".hidden", "_hidden", "con", "nul", "*.parquet", "a/../b", "x/..",
]  # fmt: skip
SCRIPTS = [
    "заказы", "παραγγελίες", "注文", "订单", "訂單", "주문", "आदेश", "คำสั่งซื้อ", "สระ", "הזמנות", "طلبات", "سفارش", "հրաման",
    "ბრძანება", "ትዕዛዝ", "ஆணை", "అజ్ఞ", "ಆದೇಶ", "ഉത്തരവ്", "আদেশ", "ਹੁਕਮ", "ઓર્ડર", "අණ", "ຄໍາສັ່ງ", "ခိုင်း", "ការបញ្ជា", "захиалга",
    "ᓄᓇᕗᑦ", "ᚠᚢᚦ", "𐌰𐌱", "𓀀𓀁", "𠀀𠀁", "ñandú", "naïve", "ǆ", "ﬁ", "Å", "Å",
]  # fmt: skip
EMOJI = ["😀", "👨‍👩‍👧", "🏳️‍🌈", "🇩🇪", "👍🏽", "1️⃣", "☃", "❤️", "𝒳", "a😀b", "😀😀"]
COMBINING = [
    "e\u0301",
    "\u0301",
    "Z͑ͫ̓a̴l͢g̨o",
    "a\u0308\u0304",
    "q\u0307\u0323",
    "क\u094d",
    "\u0e01\u0e33",
]
INVISIBLE = [
    "zero\u200bwidth", "\u200b", "\u200d", "a\u200cb", "\ufeffbom", "soft\u00adhyphen", "\u2060", "a\u180eb", "\u00a0",
    "\u202eright to left", "\u2066isolate\u2069", "\u200f", "\u202a\u202c", "pop\u202cped", "\u061c",
]  # fmt: skip
CONTROL = [
    "\x01",
    "bell\x07",
    "\x1b[31mred",
    "\x7f",
    "\x85next",
    "unit\x1fseparator",
    "null\x00byte",
    "\x00",
    "\ufffd",
    "\uffff",
]
NUMBERS = ["1", "007", "1abc", "1e5", "0x1F", "-1", "1.5", "1_000", "١٢٣", "½", "Ⅷ", "²"]
LONG = ["x" * 255, "ö" * 127, "😀" * 63, "a b" * 85, "`" * 100, "x" * 128]
RESERVED = ["_ivm_x", "_IVM_X", "_ivm_", "x__ivm", "X__IVM", "__ivm", "_ivm_x__ivm", "_ivm_view_1"]
FEED = ["_change_type", "_commit_version", "_Commit_Timestamp"]  # columns of Delta's change feed
HALVES = [
    "\ud800",
    "a\udfff",
    "\udcff\udcfe",
]  # no characters: bytes of a file name that is no UTF-8
ODDS = ["id", "ID", "_", "__", "_metadata", "x,y", "a=b", "(", ")", "a b,c;d{e}(f)\n\t=g"]

IDENTIFIERS: tuple[str, ...] = tuple(
    dict.fromkeys(
        [
            *KEYWORDS, *CASES, *PUNCTUATION, *INSIDE, *AT_THE_ENDS, *SPACES, *QUOTES, *COMMENTS, *INJECTIONS, *SUBSTITUTED,
            *FORMATS, *PATHS, *SCRIPTS, *EMOJI, *COMBINING, *INVISIBLE, *CONTROL, *NUMBERS, *LONG, *RESERVED, *FEED, *HALVES, *ODDS,
        ]
    )
)  # fmt: skip


def is_plain(name: str) -> bool:
    """Spark's own catalog can hold a table of this name."""
    return re.fullmatch("[A-Za-z0-9_]+", name) is not None and name not in RESERVED


def without_twins(names: list[str]) -> list[str]:
    """Names that differ by more than case: a table has each of them once."""
    return list({name.lower(): name for name in names}.values())
