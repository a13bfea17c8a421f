"""Files that tasks produce and consume: declared by pattern, stored by digest, restored whole or not at all."""

from towline.artifacts.collecting import collect, collect_path
from towline.artifacts.declaration import check_into, check_name, check_pattern
from towline.artifacts.directory import DirectoryArtifactStore
from towline.artifacts.records import ArtifactRef
from towline.artifacts.restoring import restore
from towline.artifacts.store import ArtifactStore, Stored

__all__ = [
    "ArtifactRef",
    "ArtifactStore",
    "DirectoryArtifactStore",
    "Stored",
    "check_into",
    "check_name",
    "check_pattern",
    "collect",
    "collect_path",
    "restore",
]
