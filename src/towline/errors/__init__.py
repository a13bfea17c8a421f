"""Every error that Towline raises, by what it concerns.

Each is imported when it is first asked for: most processes never meet most of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from towline.errors.artifacts import (
        ArtifactCorruptError,
        ArtifactError,
        ArtifactMissingError,
        ArtifactPackError,
        ArtifactTooLargeError,
        UnsafeArchiveError,
    )
    from towline.errors.commands import (
        CommandFailedError,
        CommandNotFoundError,
        CommandTimeoutError,
        UnsafeArgumentError,
    )
    from towline.errors.configuration import (
        AmbiguousNameError,
        CancelError,
        ConfigurationError,
        NothingHereError,
        RunParamsError,
        UnknownNameError,
    )
    from towline.errors.coordination import (
        BackendContractError,
        CoordinationError,
        CoordinatorAccessError,
        CoordinatorClosedError,
        CoordinatorLostError,
        LeaseLostError,
        MasterAliveError,
        MasterLostError,
        MasterReplacedError,
        ProgramMismatchError,
        RecordRefusedError,
        RunIdUsedError,
        RunUnknownError,
        SessionEndedError,
        SessionReplacedError,
        TaskUnroutableError,
        TooFewWorkersError,
        TooManyRequirementsError,
        WorkerIdTakenError,
        WorkerLostError,
    )
    from towline.errors.cursors import (
        CursorCorruptError,
        CursorOrderError,
        CursorStageError,
        IdMapConflictError,
        QueryChangedError,
        StepReusedError,
        StepValueError,
        TargetPlanError,
    )
    from towline.errors.declaration import DeclarationError, TargetLoadError, UndeclaredDependencyError
    from towline.errors.hub import FrameTooLargeError, HubRefusedError
    from towline.errors.offload import (
        BufferBusyError,
        BufferReleasedError,
        BufferTypeError,
        DuplicateKernelError,
        FrameError,
        GraphFailedError,
        GraphStateError,
        GraphTimeoutError,
        HandshakeRejectedError,
        InvariantViolated,
        KernelCrashedError,
        KernelDeclarationError,
        KernelFailedError,
        KernelTimeoutError,
        OffloadError,
        OffloadUnavailableError,
        ParameterError,
        RetryableKernelError,
        UnknownKernelError,
        UnregisteredBufferError,
    )
    from towline.errors.planning import (
        CycleError,
        ExpansionError,
        FindingError,
        OtherProgramError,
        ParamsChangedError,
        PlanBuildError,
        PlanMissingError,
        PlanTooLargeError,
        SelectionError,
        UnfinishedPlanError,
    )
    from towline.errors.root import TowlineError
    from towline.errors.running import (
        ModuleTimeoutError,
        NotAwaitedError,
        ProcessDiedError,
        SchedulerStuckError,
        TooManyAbandonedError,
    )
    from towline.errors.secrets import SecretError, SecretLimitError, SecretMissingError, SecretTravelError
    from towline.errors.state import (
        OwnershipLostError,
        OwnerUnreadableError,
        PlanCorruptError,
        PlanOwnedError,
        ResultCorruptError,
        SchemaTooNewError,
        StateAccessError,
        StateError,
        StateLostError,
        StateTooLargeError,
        StateUnsupportedError,
        VersionConflictError,
    )
    from towline.errors.testing import UnscriptedCallError, UnseededInputError
    from towline.errors.values import (
        RemoteModuleError,
        ResultTooLargeError,
        ResultTypeError,
        SerializationError,
        ValueTravelError,
    )
    from towline.errors.virtual_time import RealTimeError, SignalPointError, VirtualDeadlockError

_HOMES = {
    "artifacts": "ArtifactCorruptError ArtifactError ArtifactMissingError ArtifactPackError ArtifactTooLargeError "
    "UnsafeArchiveError",
    "commands": "CommandFailedError CommandNotFoundError CommandTimeoutError UnsafeArgumentError",
    "configuration": "AmbiguousNameError CancelError ConfigurationError NothingHereError RunParamsError UnknownNameError",
    "coordination": (
        "BackendContractError CoordinationError CoordinatorAccessError CoordinatorClosedError CoordinatorLostError LeaseLostError "
        "MasterAliveError MasterLostError MasterReplacedError ProgramMismatchError RecordRefusedError "
        "RunIdUsedError RunUnknownError SessionEndedError SessionReplacedError TaskUnroutableError "
        "TooFewWorkersError TooManyRequirementsError WorkerIdTakenError WorkerLostError"
    ),
    "cursors": (
        "CursorCorruptError CursorOrderError CursorStageError IdMapConflictError QueryChangedError "
        "StepReusedError StepValueError TargetPlanError"
    ),
    "declaration": "DeclarationError TargetLoadError UndeclaredDependencyError",
    "hub": "FrameTooLargeError HubRefusedError",
    "offload": (
        "BufferBusyError BufferReleasedError BufferTypeError DuplicateKernelError FrameError GraphFailedError "
        "GraphStateError GraphTimeoutError HandshakeRejectedError InvariantViolated KernelCrashedError "
        "KernelDeclarationError KernelFailedError KernelTimeoutError OffloadError OffloadUnavailableError "
        "ParameterError RetryableKernelError UnknownKernelError UnregisteredBufferError"
    ),
    "planning": (
        "CycleError ExpansionError FindingError OtherProgramError ParamsChangedError PlanBuildError "
        "PlanMissingError PlanTooLargeError SelectionError UnfinishedPlanError"
    ),
    "root": "TowlineError",
    "running": "ModuleTimeoutError NotAwaitedError ProcessDiedError SchedulerStuckError TooManyAbandonedError",
    "secrets": "SecretError SecretLimitError SecretMissingError SecretTravelError",
    "state": (
        "OwnerUnreadableError OwnershipLostError PlanCorruptError PlanOwnedError ResultCorruptError SchemaTooNewError StateAccessError StateError "
        "StateLostError StateTooLargeError StateUnsupportedError VersionConflictError"
    ),
    "testing": "UnscriptedCallError UnseededInputError",
    "values": "RemoteModuleError ResultTooLargeError ResultTypeError SerializationError ValueTravelError",
    "virtual_time": "RealTimeError SignalPointError VirtualDeadlockError",
}
"""The topic that defines each error; the imports above say the same to type checkers."""

__all__ = [
    "AmbiguousNameError",
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactMissingError",
    "ArtifactPackError",
    "ArtifactTooLargeError",
    "BackendContractError",
    "BufferBusyError",
    "BufferReleasedError",
    "BufferTypeError",
    "CancelError",
    "CommandFailedError",
    "CommandNotFoundError",
    "CommandTimeoutError",
    "ConfigurationError",
    "CoordinationError",
    "CoordinatorAccessError",
    "CoordinatorClosedError",
    "CoordinatorLostError",
    "CursorCorruptError",
    "CursorOrderError",
    "CursorStageError",
    "CycleError",
    "DeclarationError",
    "DuplicateKernelError",
    "ExpansionError",
    "FindingError",
    "FrameError",
    "FrameTooLargeError",
    "GraphFailedError",
    "GraphStateError",
    "GraphTimeoutError",
    "HandshakeRejectedError",
    "HubRefusedError",
    "IdMapConflictError",
    "InvariantViolated",
    "KernelCrashedError",
    "KernelDeclarationError",
    "KernelFailedError",
    "KernelTimeoutError",
    "LeaseLostError",
    "MasterAliveError",
    "MasterLostError",
    "MasterReplacedError",
    "ModuleTimeoutError",
    "NotAwaitedError",
    "NothingHereError",
    "OffloadError",
    "OffloadUnavailableError",
    "OtherProgramError",
    "OwnerUnreadableError",
    "OwnershipLostError",
    "ParameterError",
    "ParamsChangedError",
    "PlanBuildError",
    "PlanCorruptError",
    "PlanMissingError",
    "PlanOwnedError",
    "PlanTooLargeError",
    "ProcessDiedError",
    "ProgramMismatchError",
    "QueryChangedError",
    "RealTimeError",
    "RecordRefusedError",
    "RemoteModuleError",
    "ResultCorruptError",
    "ResultTooLargeError",
    "ResultTypeError",
    "RetryableKernelError",
    "RunIdUsedError",
    "RunParamsError",
    "RunUnknownError",
    "SchedulerStuckError",
    "SchemaTooNewError",
    "SecretError",
    "SecretLimitError",
    "SecretMissingError",
    "SecretTravelError",
    "SelectionError",
    "SerializationError",
    "SessionEndedError",
    "SessionReplacedError",
    "SignalPointError",
    "StateAccessError",
    "StateError",
    "StateLostError",
    "StateTooLargeError",
    "StateUnsupportedError",
    "StepReusedError",
    "StepValueError",
    "TargetLoadError",
    "TargetPlanError",
    "TaskUnroutableError",
    "TooFewWorkersError",
    "TooManyAbandonedError",
    "TooManyRequirementsError",
    "TowlineError",
    "UndeclaredDependencyError",
    "UnfinishedPlanError",
    "UnknownKernelError",
    "UnknownNameError",
    "UnregisteredBufferError",
    "UnsafeArchiveError",
    "UnsafeArgumentError",
    "UnscriptedCallError",
    "UnseededInputError",
    "ValueTravelError",
    "VersionConflictError",
    "VirtualDeadlockError",
    "WorkerIdTakenError",
    "WorkerLostError",
]

if not TYPE_CHECKING:
    _HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

    def __getattr__(name: str) -> object:
        """Import an error from its topic, once."""
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module 'towline.errors' has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(f"towline.errors.{home}"), name)
        return found
