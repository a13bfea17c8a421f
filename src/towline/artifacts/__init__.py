"""Files that tasks produce and consume: declared by pattern, stored by digest, restored whole or not at all.

What moves files is imported by its file, where it is used: ``collecting``, ``restoring``, ``directory``.
"""

from towline.artifacts.declaration import check_into, check_name, check_pattern
from towline.artifacts.records import ArtifactRef
from towline.artifacts.store import ArtifactStore, Stored

__all__ = ["ArtifactRef", "ArtifactStore", "Stored", "check_into", "check_name", "check_pattern"]
