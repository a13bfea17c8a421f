"""Files that tasks produce and consume: declared by pattern, stored by digest, restored whole or not at all."""

from towline.artifacts.declaration import check_into, check_name, check_pattern
from towline.artifacts.records import ArtifactRef

__all__ = ["ArtifactRef", "check_into", "check_name", "check_pattern"]
