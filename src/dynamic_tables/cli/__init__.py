"""The command line: `dynamic-tables` and its verbs.

    program.py    the program: global flags, one shape for all errors, exit codes
    strict.py     values as strict JSON
    session.py    settings, the open lake, progress, printing
    declaring.py  create alter suspend resume drop optimize
    looking.py    refresh plan explain list show history graph verify
    working.py    run worker
    tools.py      sql config doctor demo

Data goes to stdout, everything else to stderr: progress, notes and errors.
"""

from __future__ import annotations

import logging
import sys

from dynamic_tables.cli import declaring, looking, tools, working
from dynamic_tables.cli.program import Program, program

for _verb in (*declaring.VERBS, *looking.VERBS, *working.VERBS, *tools.VERBS):
    program.add_command(_verb)


def main() -> None:
    """The entry point; it exits with one of the documented codes."""
    if "--debug" not in sys.argv:
        # py4j logs a traceback to the root logger when Ctrl-C meets a call to the JVM.
        logging.basicConfig(handlers=[logging.NullHandler()])
    program.main()


__all__ = ["Program", "main", "program"]
