"""Every error that Towline raises, by what it concerns."""

from towline.errors.artifacts import (
    ArtifactCorruptError,
    ArtifactError,
    ArtifactMissingError,
    ArtifactPackError,
    UnsafeArchiveError,
)
from towline.errors.root import TowlineError
from towline.errors.secrets import SecretError, SecretLimitError, SecretMissingError, SecretTravelError
from towline.errors.values import (
    RemoteModuleError,
    ResultTooLargeError,
    ResultTypeError,
    SerializationError,
    ValueTravelError,
)

__all__ = [
    "ArtifactCorruptError",
    "ArtifactError",
    "ArtifactMissingError",
    "ArtifactPackError",
    "RemoteModuleError",
    "ResultTooLargeError",
    "ResultTypeError",
    "SecretError",
    "SecretLimitError",
    "SecretMissingError",
    "SecretTravelError",
    "SerializationError",
    "TowlineError",
    "UnsafeArchiveError",
    "ValueTravelError",
]
