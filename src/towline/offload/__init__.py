"""Array kernels by name, on the nodes that have room. Needs the extra ``towline[offload]``."""

from towline.errors.offload import RetryableKernelError
from towline.offload.agent import WorkerAgent
from towline.offload.arrays import Array, ArrayLike, SupportsBuffer, SupportsDlpack
from towline.offload.buffers import Buffer, State
from towline.offload.cancellation import cancelled
from towline.offload.cluster import Cluster
from towline.offload.door import OffloadDoor, PipelineOffload
from towline.offload.fabric import InProcessFabric
from towline.offload.graph import Graph
from towline.offload.kernels import Kernel, KernelFunction, KernelRef, Probe, Tolerant, kernel
from towline.offload.links import Link, Transport
from towline.offload.options import AgentOptions, OffloadAccess, OffloadOptions, options_from
from towline.offload.policies import CostAwarePolicy, LeastLoadedPolicy, OffloadPolicy
from towline.offload.records import (
    AgentEnd,
    CallExplanation,
    CallId,
    CallNumber,
    CallOutcome,
    CallView,
    Decline,
    GraphResult,
    LocalView,
    OffloadEvent,
    OffloadStats,
    Param,
    VersionEntry,
    WorkerId,
    WorkerView,
)
from towline.offload.registry import KernelRegistry
from towline.offload.runtime import Runtime
from towline.offload.tcp import TcpTransport

__all__ = [
    "AgentEnd",
    "AgentOptions",
    "Array",
    "ArrayLike",
    "Buffer",
    "CallExplanation",
    "CallId",
    "CallNumber",
    "CallOutcome",
    "CallView",
    "Cluster",
    "CostAwarePolicy",
    "Decline",
    "Graph",
    "GraphResult",
    "InProcessFabric",
    "Kernel",
    "KernelFunction",
    "KernelRef",
    "KernelRegistry",
    "LeastLoadedPolicy",
    "Link",
    "LocalView",
    "OffloadAccess",
    "OffloadDoor",
    "OffloadEvent",
    "OffloadOptions",
    "OffloadPolicy",
    "OffloadStats",
    "Param",
    "PipelineOffload",
    "Probe",
    "RetryableKernelError",
    "Runtime",
    "State",
    "SupportsBuffer",
    "SupportsDlpack",
    "TcpTransport",
    "Tolerant",
    "Transport",
    "VersionEntry",
    "WorkerAgent",
    "WorkerId",
    "WorkerView",
    "cancelled",
    "kernel",
    "options_from",
]
