"""The keys of one pipeline on a Redis server: ``towline:{<pipeline>}:<key>``, one slot of a cluster (STATE-19). Pure."""

from __future__ import annotations

from typing import Final

PREFIX: Final = "towline"
PLANS: Final = f"{PREFIX}:{{*}}:plan.json"
"""A pattern of the plans of all pipelines."""


class PipelineKeys:
    """Names of what a pipeline has on a server. What begins with ``~`` is no document: no segment begins so.

    ``pipeline``, ``digest`` and ``run``: as segments, which have no brace and no slash.
    """

    def __init__(self, pipeline: str) -> None:
        self.base = f"{PREFIX}:{{{pipeline}}}:"
        self.owner = self.base + "~owner"
        self.epoch = self.base + "~epoch"
        self.index = self.base + "~keys"
        self.cancel = self.base + "~cancel"
        self.identity = self.base + "~id"

    def document(self, key: str) -> str:
        """Return the name of a document."""
        return self.base + key

    def draft(self, name: str) -> str:
        """Return the name of something that is on its way and will be renamed or expire."""
        return f"{self.base}~draft/{name}"

    def artifact(self, digest: str) -> str:
        """Return the name of what is known of an artifact: generation, size, number of chunks."""
        return f"{self.base}~artifact/{digest}"

    def chunk(self, generation: str, number: int) -> str:
        """Return the name of a piece of an artifact."""
        return f"{self.base}~chunk/{generation}/{number}"

    def run_artifacts(self, run: str) -> str:
        """Return the name of the set of digests that were put for a run."""
        return f"{self.base}~run/{run}"


def pipeline_of(key: str) -> str:
    """Return the pipeline of a key on the server, as it is spelt there."""
    return key.partition("{")[2].partition("}")[0]
