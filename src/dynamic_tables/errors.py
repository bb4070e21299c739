"""All errors of the product.

    DynamicTablesError                 object, reason, hint; never raised itself
    ├── InvalidInput                   the statement, the query or an argument is wrong        exit
    code 2
    │   ├── StatementError             … at a position in a text
    │   └── UnsupportedSQLError        … a query that `compile_ivm` cannot keep up by changes
    ├── Refused                        right, but a rule forbids it (children, suspended)      exit
    code 4
    ├── Held                           another live process refreshes the table                exit
    code 5
    ├── RefreshError                   the refresh of one table failed                         exit
    code 3
    ├── RefreshFailed                  a refresh of several tables failed; has the report      exit
    code 3
    ├── SetupError                     Java, Spark, Delta, store or folder is not as needed    exit
    code 2
    └── InternalError                  an invariant does not hold: our defect                  exit
    code 1

Each error says what object it is about, which reason code applies, and what to type next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dynamic_tables.reasons import BY_POLICY, Reason

if TYPE_CHECKING:
    from dynamic_tables.model import RefreshReport


class DynamicTablesError(Exception):
    """The root. `str(error)` is one paragraph: object, sentence, code and hint."""

    exit_code: ClassVar[int] = 1

    def __init__(
        self, message: str, *, reason: Reason, about: str | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.reason = reason
        self.about = about  # the table, column, option, file … that the error is about
        self.hint = hint  # the next command to type
        super().__init__(message)

    def __str__(self) -> str:
        about = f"{self.about}: " if self.about else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{about}{self.message} [{self.reason.value}]{hint}"

    def as_json(self) -> dict[str, str | None]:
        """The one error shape that `--json` prints."""
        return {
            "error": self.message,
            "reason": self.reason.value,
            "about": self.about,
            "hint": self.hint,
        }


class InvalidInput(DynamicTablesError):
    """The user's statement, query or argument is wrong."""

    exit_code = 2


class StatementError(InvalidInput):
    """A statement is wrong at a known place."""

    def __init__(
        self,
        message: str,
        *,
        reason: Reason,
        text: str,
        position: int,
        about: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.text, self.position = text, position
        self._said = message
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        super().__init__(
            f"line {self.line}, column {self.column}: {message}",
            reason=reason,
            about=about,
            hint=hint,
        )

    def within(self, before: str, about: str) -> StatementError:
        """The same error in the longer text that `before` begins: that is what the user wrote."""
        return StatementError(
            self._said,
            reason=self.reason,
            text=before + self.text,
            position=len(before) + self.position,
            about=self.about or about,
            hint=self.hint,
        )


class UnsupportedSQLError(InvalidInput):
    """`compile_ivm` has no statements that would keep this query up to date by its changes."""

    def __init__(self, feature: str, message: str) -> None:
        self.feature = str(feature)  # a reason code
        known = feature in Reason.__members__
        reason = Reason(feature) if known else Reason.NOT_INCREMENTAL
        super().__init__(message, reason=reason)


class Refused(DynamicTablesError):
    """A well-formed request that a rule of the product forbids."""

    exit_code = 4


class Held(DynamicTablesError):
    """Another live process refreshes the table."""

    exit_code = 5


class RefreshError(DynamicTablesError):
    """The refresh of one table failed; the table is as it was."""

    exit_code = 3


class RefreshFailed(DynamicTablesError):
    """At least one table of a refresh failed; `report` has the outcome of each."""

    exit_code = 3

    def __init__(self, report: RefreshReport, *, hint: str | None = None) -> None:
        self.report = report
        failed = report.failed
        first = failed[0]
        others = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        history = "`dynamic-tables history` shows each refresh with its error"
        super().__init__(
            f"{first.error}{others}",
            reason=first.reason,
            about=str(first.table),
            hint=hint or (f"{first.note}; {history}" if first.note else history),
        )

    @property
    def exit_code_for_cli(self) -> int:
        """5 when nothing worse happened than that others held or took over a table, 4 when rules
        refused (on plain S3 one driver holds a table, and keeps others away from the rest)."""
        reasons = {record.reason for record in self.report.failed}
        by_others = {Reason.HELD, Reason.TAKEN_OVER}
        if reasons <= by_others:
            return Held.exit_code
        refused = reasons <= {*BY_POLICY, Reason.NO_EXCLUSION, *by_others}
        return Refused.exit_code if refused else self.exit_code


class SetupError(DynamicTablesError):
    """The surroundings (Java, Spark, Delta, store, folder) are not as needed."""

    exit_code = 2


class InternalError(DynamicTablesError):
    """An invariant of the product does not hold."""

    exit_code = 1
