"""Errors of what master and workers share: sessions, leases, mastership, the server in between."""

from __future__ import annotations

from typing import ClassVar

from towline.errors.root import TowlineError


class CoordinationError(TowlineError):
    """The coordinator refused a call, or cannot be used."""

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def __str__(self) -> str:
        return self.message


class WorkerIdTakenError(CoordinationError):
    """Another live process has this worker id (COORD-C03)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, worker_id: str, host: str, pid: int, silent_s: float) -> None:
        TowlineError.__init__(self, worker_id, host, pid, silent_s)
        self.worker_id, self.host, self.pid, self.silent_s = worker_id, host, pid, silent_s

    def __str__(self) -> str:
        return (
            f"worker id {self.worker_id!r} belongs to process {self.pid} on {self.host}, heard {self.silent_s:.1f} s ago. "
            "Give each process its own --instance index. When that process is gone, its id is free once it has been silent "
            "for the worker timeout (30 s unless set): start this one again then."
        )


class SessionReplacedError(CoordinationError):
    """A newer process registered under this worker id (COORD-C04)."""

    def __init__(self, worker_id: str, session: str, newer_session: str) -> None:
        TowlineError.__init__(self, worker_id, session, newer_session)
        self.worker_id, self.session, self.newer_session = worker_id, session, newer_session

    def __str__(self) -> str:
        return (
            f"{self.worker_id} (session {self.session}) was replaced by session {self.newer_session}. "
            "Stop this older process."
        )


class SessionEndedError(CoordinationError):
    """The session is silent, expelled or unknown: register again, with what is still held (COORD-C01, C11).

    ``expelled`` sessions do not come back; their process registers under a new one.
    """

    def __init__(self, worker_id: str, session: str, expelled: bool = False) -> None:
        TowlineError.__init__(self, worker_id, session, expelled)
        self.worker_id, self.session, self.expelled = worker_id, session, expelled

    def __str__(self) -> str:
        why = "was expelled" if self.expelled else "is not registered or was silent for longer than the worker timeout"
        return f"{self.worker_id} (session {self.session}) {why}. Cancel what it runs and register again."


class ProgramMismatchError(CoordinationError):
    """Nodes of one run do not run the same program (COORD-C08)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, what: str, run_value: str, own_value: str, differences: tuple[str, ...] = ()) -> None:
        TowlineError.__init__(self, what, run_value, own_value, differences)
        self.what, self.run_value, self.own_value, self.differences = what, run_value, own_value, tuple(differences)

    def __str__(self) -> str:
        shown = f" ({', '.join(self.differences)})" if self.differences else ""
        advice = "Deploy one version of the program to all nodes, or start a new run."
        if self.what == "program":
            advice = "Start this process with the file and pipeline of the run, or name a run of its own program."
        return f"this process has {self.what} {self.own_value!r}, the run has {self.run_value!r}{shown}. {advice}"


class RunUnknownError(CoordinationError):
    """The coordinator knows no such run: not opened yet, cleaned up, or its data is lost (COORD-C09)."""

    def __init__(self, run_id: str, coordinator: str = "") -> None:
        TowlineError.__init__(self, run_id, coordinator)
        self.run_id, self.coordinator = run_id, coordinator

    def __str__(self) -> str:
        where = f" at {self.coordinator}" if self.coordinator else ""
        return f"no run {self.run_id!r} is open{where}. Check the run id, and that the master has started."


class RunIdUsedError(CoordinationError):
    """Another run has this id. ``status`` says how far that one came, and when."""

    exit_code: ClassVar[int] = 2

    def __init__(self, run_id: str, status: str = "has ended already") -> None:
        TowlineError.__init__(self, run_id, status)
        self.run_id, self.status = run_id, status

    def __str__(self) -> str:
        return f"run {self.run_id!r} {self.status}. Start the new run under another --run-id."


class MasterAliveError(CoordinationError):
    """Another master may still lead the run (COORD-C64)."""

    def __init__(self, run_id: str, master_id: str, owner_epoch: int, silent_s: float) -> None:
        TowlineError.__init__(self, run_id, master_id, owner_epoch, silent_s)
        self.run_id, self.master_id, self.owner_epoch, self.silent_s = run_id, master_id, owner_epoch, silent_s

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} has a master: {self.master_id} (owner epoch {self.owner_epoch}), heard "
            f"{self.silent_s:.1f} s ago. Stop it, or wait until its lease has run out."
        )


class MasterReplacedError(CoordinationError):
    """A newer master leads the run; this one changes nothing any more (COORD-C65)."""

    def __init__(self, run_id: str, owner_epoch: int, newer_epoch: int) -> None:
        TowlineError.__init__(self, run_id, owner_epoch, newer_epoch)
        self.run_id, self.owner_epoch, self.newer_epoch = run_id, owner_epoch, newer_epoch

    def __str__(self) -> str:
        return (
            f"the master of run {self.run_id!r} with owner epoch {self.owner_epoch} was replaced by epoch "
            f"{self.newer_epoch}. Nothing is to be done: the newer one goes on."
        )


class MasterLostError(CoordinationError):
    """The master has been silent for the master timeout (COORD-C85, DIST-25)."""

    def __init__(self, run_id: str, silent_s: float, limit_s: float) -> None:
        TowlineError.__init__(self, run_id, silent_s, limit_s)
        self.run_id, self.silent_s, self.limit_s = run_id, silent_s, limit_s

    def __str__(self) -> str:
        return (
            f"the master of run {self.run_id!r} has been silent for {self.silent_s:.1f} s (limit {self.limit_s:g} s). "
            "Start it again with the same run id."
        )


class CoordinatorLostError(CoordinationError):
    """The server between the nodes has not answered for the master timeout (COORD-R20). ``url`` holds no secret."""

    def __init__(self, url: str, cause: str, seconds: float) -> None:
        TowlineError.__init__(self, url, cause, seconds)
        self.url, self.cause, self.seconds = url, cause, seconds

    def __str__(self) -> str:
        return (
            f"no answer from {self.url} for {self.seconds:.1f} s; last cause: {self.cause}. "
            "Restore it and resume the run."
        )


class CoordinatorAccessError(CoordinationError):
    """The server between the nodes refuses this password, or wants one; trying again does not help (COORD-R21)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, url: str, cause: str, advice: str) -> None:
        TowlineError.__init__(self, url, cause, advice)
        self.url, self.cause, self.advice = url, cause, advice

    def __str__(self) -> str:
        return f"{self.url} does not let this process in ({self.cause}): {self.advice}."


class CoordinatorClosedError(CoordinationError):
    """A call on a coordinator that is closed (COORD-C81)."""

    def __init__(self, operation: str) -> None:
        TowlineError.__init__(self, operation)
        self.operation = operation

    def __str__(self) -> str:
        return f"{self.operation}: this coordinator is closed. Close it after its last use."


class WorkerLostError(CoordinationError):
    """A worker process died over a task, and only the master's own process is left to try it in (DIST-12)."""

    exit_code: ClassVar[int] = 1

    def __init__(self, task_id: str, workers: tuple[str, ...]) -> None:
        TowlineError.__init__(self, task_id, workers)
        self.task_id, self.workers = task_id, workers

    def __str__(self) -> str:
        return (
            f"{self.task_id} was running on {', '.join(self.workers)} when that process died, and no worker process is "
            "left. It is not tried in the master's process, which it could end too. Look at what ended the worker, "
            "then resume the run."
        )


class TaskUnroutableError(CoordinationError):
    """No worker can run a task (DIST-28). ``workers``: id with capabilities, as text."""

    exit_code: ClassVar[int] = 1

    def __init__(self, task_id: str, requirement: str, workers: tuple[str, ...]) -> None:
        TowlineError.__init__(self, task_id, requirement, workers)
        self.task_id, self.requirement, self.workers = task_id, requirement, workers

    def __str__(self) -> str:
        seen = "; ".join(self.workers) or "none"
        return (
            f"no worker can run {self.task_id!r}, which requires {self.requirement}. Workers seen: {seen}. "
            "Add a worker with the missing capability, or change `requires`."
        )


class TooFewWorkersError(CoordinationError):
    """The workers that the run requires did not come in time (DIST-06)."""

    def __init__(self, wanted: int, present: int, waited_s: float) -> None:
        TowlineError.__init__(self, wanted, present, waited_s)
        self.wanted, self.present, self.waited_s = wanted, present, waited_s

    def __str__(self) -> str:
        return (
            f"{self.present} of {self.wanted} required workers registered within {self.waited_s:g} s. "
            "Start the others, or lower minimum_workers."
        )


class TooManyRequirementsError(CoordinationError):
    """A run has more distinct requirements than the coordinator keeps queues for (COORD-R05)."""

    exit_code: ClassVar[int] = 2

    def __init__(self, count: int, limit: int) -> None:
        TowlineError.__init__(self, count, limit)
        self.count, self.limit = count, limit

    def __str__(self) -> str:
        return (
            f"the run has {self.count} distinct combinations of `requires` and `always_run`, the limit is {self.limit}. "
            "Use fewer distinct requirements."
        )


class RecordRefusedError(CoordinationError):
    """A record breaks a limit or contradicts itself; nothing was stored."""

    def __init__(self, what: str, value: str, rule: str) -> None:
        TowlineError.__init__(self, what, value, rule)
        self.what, self.value, self.rule = what, value, rule

    def __str__(self) -> str:
        return f"{self.what} is {self.value}: {self.rule}."


class LeaseLostError(CoordinationError):
    """A worker acted on a task that has since gone to another, or back to the queue (DIST-35, CUR-05).

    ``current_epoch`` is 0 where it is not known: a holder hears of its loss alone.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, task_id: str, epoch: int, current_epoch: int, worker_id: str = "", holder: str = "") -> None:
        TowlineError.__init__(self, task_id, epoch, current_epoch, worker_id, holder)
        self.task_id, self.epoch, self.current_epoch = task_id, epoch, current_epoch
        self.worker_id, self.holder = worker_id, holder

    def __str__(self) -> str:
        who = self.worker_id or "this process"
        now = f"{self.holder or 'the task'} has epoch {self.current_epoch} now"
        if not self.current_epoch:
            now = "it went back to the queue, or to another worker"
        return f"{who} no longer holds the lease of {self.task_id!r} (epoch {self.epoch}): {now}. Renew within the worker timeout, or raise it; this execution is dropped."


class BackendContractError(CoordinationError):
    """An execution back end broke the contract of the seam (DIST-81, 82, 86). ``tasks``: those concerned."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, tasks: tuple[str, ...]) -> None:
        TowlineError.__init__(self, what, tasks)
        self.what, self.tasks = what, tasks

    def __str__(self) -> str:
        shown = ", ".join(self.tasks[:20]) + (f" and {len(self.tasks) - 20} more" if len(self.tasks) > 20 else "")
        return f"the execution back end {self.what}: {shown}. Repair the back end."
