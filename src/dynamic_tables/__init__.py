"""Dynamic Tables for Spark: declare a table by a SELECT over Delta tables; we keep it up to date.

>>> import dynamic_tables as dt
>>> tables = dt.connect("./lake")                                    # doctest: +SKIP
>>> tables.create("sales.by_customer", "SELECT …", target_lag="5 minutes")  # doctest: +SKIP
>>> tables.refresh()                                                 # doctest: +SKIP
"""

from dynamic_tables.answers import Explanation, Verification
from dynamic_tables.app import DynamicTables
from dynamic_tables.compiler.ivm.compile import compile_ivm
from dynamic_tables.compiler.ivm.plan import IVMPlan, Naming
from dynamic_tables.connect import connect
from dynamic_tables.declare import Declared
from dynamic_tables.errors import (
    DynamicTablesError,
    Held,
    InternalError,
    InvalidInput,
    RefreshError,
    RefreshFailed,
    Refused,
    SetupError,
    StatementError,
    UnsupportedSQLError,
)
from dynamic_tables.layout.multi import RorderItem, rorder_setup_multi, rorder_single
from dynamic_tables.layout.plan import RorderPlan, rorder_plan
from dynamic_tables.layout.ranged import append, create_ranged_table
from dynamic_tables.layout.report import PartitionReport, RorderReport
from dynamic_tables.layout.rorder import rorder
from dynamic_tables.model import (
    Action,
    Cut,
    Outcome,
    RefreshRecord,
    RefreshReport,
    Status,
    Strategy,
    TableState,
)
from dynamic_tables.options import Options
from dynamic_tables.reasons import Reason
from dynamic_tables.refresh.preview import Planned

__all__ = [
    "Action",
    "Cut",
    "Declared",
    "DynamicTables",
    "DynamicTablesError",
    "Explanation",
    "Held",
    "IVMPlan",
    "InternalError",
    "InvalidInput",
    "Naming",
    "Options",
    "Outcome",
    "PartitionReport",
    "Planned",
    "Reason",
    "RefreshError",
    "RefreshFailed",
    "RefreshRecord",
    "RefreshReport",
    "Refused",
    "RorderItem",
    "RorderPlan",
    "RorderReport",
    "SetupError",
    "StatementError",
    "Status",
    "Strategy",
    "TableState",
    "UnsupportedSQLError",
    "Verification",
    "append",
    "compile_ivm",
    "connect",
    "create_ranged_table",
    "rorder",
    "rorder_plan",
    "rorder_setup_multi",
    "rorder_single",
]
