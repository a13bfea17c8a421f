"""Move a year of flights from one database to another: export, judge, import, validate.

    python build_legacy.py                                   # the source, from data on this disk
    towline run flight_log_move.py                           # stops at the gates: exit 3
    python answer.py                                         # what an operator would write
    towline run flight_log_move.py                           # goes on from there

``flight_log_move.py:small`` moves January alone.
"""

from move.parameters import Move, SmallMove
from move.prepare import prepare_flights
from move.validate import validate_parity
from towline import Options, Pipeline

PHASES = ("export", "prepare", "import")
# Two months at a time: SQLite takes one writer at once, and reading the next batch overlaps with the other's writing.
OPTIONS = Options(pools={"target": 2})

pipeline = Pipeline("flights", [validate_parity, prepare_flights], params=Move, phases=PHASES, options=OPTIONS)
small = Pipeline("small", [validate_parity, prepare_flights], params=SmallMove, phases=PHASES, options=OPTIONS)

if __name__ == "__main__":
    pipeline.main()
