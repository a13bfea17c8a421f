"""Settings of a runtime and of an agent, checked when the object is made (section 8)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from towline.access.addresses import parse_address
from towline.errors.configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PREFIX = "TOWLINE_OFFLOAD_"


class OffloadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a runtime places calls and judges its workers. Seconds and bytes.

    ``enabled=False`` keeps every call local. ``attempts`` is how many counted dispatches a call gets before
    it is pinned to this process. ``result_deadline_s`` bounds one dispatch however lively its worker is;
    ``call_deadline_s`` bounds silence about a call. ``endpoints`` are agents (``HOST:PORT``) that ``ctx.offload``
    of a pipeline dials; a ``Runtime`` of your own dials with ``Cluster.dial``.
    """

    enabled: bool = True
    endpoints: tuple[str, ...] = ()
    min_offload_bytes: int = 65_536
    attempts: int = 3
    heartbeat_interval_s: float = 1.0
    suspect_after_s: float = 2.0
    liveness_timeout_s: float = 5.0
    call_deadline_s: float = 30.0
    result_deadline_s: float | None = None
    inventory_misses: int = 3
    hello_retry_s: float = 1.0
    connect_timeout_s: float = 5.0
    handshake_timeout_s: float = 5.0
    reconnect_s: float = 0.5
    reconnect_max_s: float = 5.0
    result_resend_s: float = 2.0
    pull_timeout_s: float = 5.0
    pull_tries: int = 3
    drain_timeout_s: float = 10.0
    inline_bytes: int = 64 * KIB
    offer_bytes: int = 1 * MIB
    max_buffer_bytes: int = 8 * GIB
    send_window_bytes: int = 64 * MIB
    no_worker_wait_s: float = 60.0
    local_slots: int | None = None
    blas_threads: int = 1
    shm: bool = True
    numeric: Literal["warn", "strict"] = "warn"
    verify: Literal["off", "monitor", "full"] = "off"

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and name != "min_offload_bytes":
                _check(self, name, value > 0, "it must be above 0")
        _check(self, "min_offload_bytes", self.min_offload_bytes >= 0, "it must be 0 or more")
        _check(self, "heartbeat_interval_s", self.heartbeat_interval_s * 3 <= self.liveness_timeout_s,
               "three intervals must fit into liveness_timeout_s")  # fmt: skip
        _check(
            self,
            "suspect_after_s",
            self.suspect_after_s < self.liveness_timeout_s,
            "it must be below liveness_timeout_s",
        )
        for endpoint in self.endpoints:
            parse_address(endpoint, "offload endpoint", allow_port_zero=False)
        _check(self, "numeric", self.numeric in ("warn", "strict"), "use 'warn' or 'strict'")
        _check(self, "verify", self.verify in ("off", "monitor", "full"), "use 'off', 'monitor' or 'full'")

    @property
    def slots_here(self) -> int:
        """Kernels that run at once in this process: ``local_slots``, else one per core."""
        return self.local_slots or os.cpu_count() or 1

    def timers(self) -> dict[str, float]:
        """Return what a worker must keep to, as WELCOME carries it."""
        names = ("heartbeat_interval_s", "liveness_timeout_s", "hello_retry_s", "result_resend_s", "pull_timeout_s")
        return {name: float(getattr(self, name)) for name in names}

    def limits(self) -> dict[str, int]:
        """Return the sizes a worker must keep to, as WELCOME carries them."""
        return {"offer_bytes": self.offer_bytes, "pull_tries": self.pull_tries, "verify": int(self.verify == "full"),
                "max_buffer_bytes": self.max_buffer_bytes}  # fmt: skip


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How much of its machine an agent gives. ``cache_bytes`` 0: a quarter of memory, at most 4 GiB."""

    slots: int | None = None
    max_jobs: int | None = None
    cache_bytes: int = 0
    result_entries: int = 64
    result_bytes: int = 256 * MIB
    blas_threads: int = 1
    shm: bool = True
    devices: tuple[str, ...] = ("cpu",)
    drain_timeout_s: float = 10.0
    master_timeout_s: float = 60.0
    connect_timeout_s: float = 5.0
    hello_retry_s: float = 1.0
    reconnect_s: float = 0.5
    reconnect_max_s: float = 5.0

    def __post_init__(self) -> None:
        for name in ("slots", "max_jobs", "result_entries", "result_bytes", "blas_threads", "drain_timeout_s",
                     "master_timeout_s", "connect_timeout_s", "hello_retry_s", "reconnect_s", "reconnect_max_s"):  # fmt: skip
            value = getattr(self, name)
            _check(self, name, value is None or value > 0, "it must be above 0")
        _check(self, "cache_bytes", self.cache_bytes >= 0, "it must be 0 or more")

    @property
    def slots_here(self) -> int:
        """Kernels at once: ``slots``, else one per core."""
        return self.slots or os.cpu_count() or 1

    @property
    def jobs_here(self) -> int:
        """Calls held at once: ``max_jobs``, else twice the slots, at least 64; a master sends so many only of quick ones."""
        return self.max_jobs or max(64, 2 * self.slots_here)


class OffloadAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The shared token, and TLS files: ``tls_cert`` and ``tls_key`` prove who listens, ``tls_ca`` who is trusted."""

    token: str = ""
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_ca: str | None = None
    require_client_cert: bool = False

    @property
    def uses_tls(self) -> bool:
        """Whether links are encrypted."""
        return self.tls_cert is not None or self.tls_ca is not None

    def __repr__(self) -> str:
        return f"OffloadAccess(token={'set' if self.token else 'none'}, tls={self.uses_tls})"


def options_from(environ: Mapping[str, str], settings: Mapping[str, Any] | None = None) -> OffloadOptions:
    """Build options from ``TOWLINE_OFFLOAD_*`` over ``[tool.towline.offload]``.

    Raises:
        ConfigurationError: A value has the wrong type or cannot work; it names where the value came from.
    """
    values = dict(settings or {})
    sources = dict.fromkeys(values, "[tool.towline.offload]")
    for name in OffloadOptions.__struct_fields__:
        variable = PREFIX + name.upper()
        if variable in environ:
            values[name], sources[name] = environ[variable], variable
    if isinstance(values.get("endpoints"), str):
        values["endpoints"] = tuple(filter(None, (part.strip() for part in values["endpoints"].split(","))))
    for name, value in values.items():
        if name not in OffloadOptions.__struct_fields__:
            raise ConfigurationError(f"offload.{name}", value, sources[name], "there is no such setting")
    try:
        return msgspec.convert(values, OffloadOptions, strict=False)
    except msgspec.ValidationError as error:
        text = str(error)
        name = text.rpartition("$.")[2].rstrip("`") if "$." in text else "offload"
        raise ConfigurationError(f"offload.{name}", values.get(name), sources.get(name, "given"), text) from error


def _check(options: object, name: str, good: bool, advice: str) -> None:
    if not good:
        raise ConfigurationError(f"offload.{name}", getattr(options, name), "given", advice)
