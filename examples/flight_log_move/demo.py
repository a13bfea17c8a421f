"""Show a pipeline that must finish: stopped by a gate, killed with -9 while it imports, resumed, compared.

    python demo.py [--small] [--folder .demo]

Everything happens below one folder, which is emptied first. Takes one to two minutes; ``--small`` moves January alone.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import answer
import build_legacy

HERE = Path(__file__).resolve().parent
TOWLINE = Path(sys.executable).with_name("towline")
DEADLINE_S = 600.0


class Demo:
    """One demonstration in one folder."""

    def __init__(self, folder: Path, *, small: bool) -> None:
        self.folder, self.small = folder, small
        self.moved, self.undisturbed = folder / "move", folder / "undisturbed"
        self.legacy = folder / "legacy.sqlite"
        self.target = f"{HERE / 'flight_log_move.py'}{':small' if small else ''}"
        self.flights = 27_004 if small else 336_776

    def play(self) -> int:
        """Play all acts; return the exit code: 0 when everything was as promised."""
        shutil.rmtree(self.folder, ignore_errors=True)
        for folder in (self.moved, self.undisturbed):
            folder.mkdir(parents=True)
        self.heading("The source: a year of real flights, built from packages on this disk")
        build_legacy.build(self.legacy)

        self.heading("Act 1: the first run. 43 tasks; a gate will stop it, for 38 airports are ambiguous")
        self.expect(3, self.start(self.moved).wait(DEADLINE_S))

        self.heading("Act 2: the operator answers in mapping.json")
        answer.main(str(self.legacy), str(self.moved / "mapping.json"))

        self.heading("Act 3: the same command goes on, exports nothing again, and is killed with -9 while it imports")
        self.kill_while_importing(self.start(self.moved))
        written = rows(self.moved / "target.sqlite")
        print(f"\nkilled with {written:,} of {self.flights:,} flights in the target")

        self.heading("Act 4: the same command once more. It goes on where each month was")
        self.expect(0, self.start(self.moved).wait(DEADLINE_S))

        self.heading("Act 5: the same move undisturbed, elsewhere, to compare")
        shutil.copy(self.moved / "mapping.json", self.undisturbed)
        self.expect(0, self.start(self.undisturbed, "--plain", quiet=True).wait(DEADLINE_S))
        return self.compare()

    def start(self, folder: Path, *flags: str, quiet: bool = False) -> subprocess.Popen[bytes]:
        """Start the run as a process of its own, as an operator would."""
        command = [str(TOWLINE), "run", self.target, "--param", f"legacy={self.legacy}", *flags]
        shown = (
            " ".join(["towline", "run", *command[2:]]).replace(f"{HERE}{os.sep}", "").replace(str(self.folder), "..")
        )
        print(f"$ {shown}", flush=True)
        output = (self.folder / "undisturbed.log").open("wb") if quiet else None
        return subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT if quiet else None)

    def kill_while_importing(self, process: subprocess.Popen[bytes]) -> None:
        """Wait until a third of the flights are in the target, then kill as hard as can be."""
        deadline = time.monotonic() + DEADLINE_S
        while rows(self.moved / "target.sqlite") < self.flights / 3:
            if process.poll() is not None:
                sys.exit(f"the run ended with {process.returncode} before it could be killed")
            if time.monotonic() > deadline:
                process.kill()
                sys.exit(f"nothing was imported within {DEADLINE_S:.0f} s")
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if sys.stdout.isatty():
            sys.stdout.write("\x1b[?25h\x1b[0m\n")  # a killed process cannot show the cursor again

    def expect(self, wanted: int, code: int) -> None:
        """Stop unless the run ended as this act needs."""
        print(f"exit {code}")
        if code != wanted:
            sys.exit(f"expected exit {wanted}")

    def compare(self) -> int:
        """Compare what both runs left."""
        reports = [
            json.loads((folder / "package" / "validation.json").read_text())
            for folder in (self.moved, self.undisturbed)
        ]
        one, other = (report["digest"] for report in reports)
        self.heading("The end")
        print(f"digest of the target, killed and resumed: {one}")
        print(f"digest of the target, undisturbed:        {other}")
        print("the same" if one == other else "NOT THE SAME")
        print(
            f"\nWhat to look at, in {self.moved}:\n"
            "  towline runs                       the runs of this plan, and how each ended\n"
            "  towline why import.flights[03]     why a task ran, waited or was kept\n"
            "  .towline/                          plan, journal, results, logs: plain files\n"
            "  package/validation.json            counts, skips and the digest\n"
            f"The pipeline itself: {HERE / 'flight_log_move.py'}"
        )
        return 0 if one == other else 1

    def heading(self, text: str) -> None:
        print(f"\n=== {text}", flush=True)


def rows(target: Path) -> int:
    """Count the flights in a target that someone else writes; 0 while there is none."""
    if not target.exists():
        return 0
    with closing(sqlite3.connect(f"file:{target}?mode=ro", uri=True, timeout=10)) as connection:
        try:
            return int(connection.execute("select count(*) from flights").fetchone()[0])
        except sqlite3.OperationalError:  # the table is not there yet
            return 0


def main() -> int:
    """Read the call and play."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--small", action="store_true", help="move January alone")
    parser.add_argument("--folder", type=Path, default=Path(".demo"), help="emptied first; default .demo")
    chosen = parser.parse_args()
    return Demo(chosen.folder.resolve(), small=chosen.small).play()


if __name__ == "__main__":
    sys.exit(main())
