"""How a link becomes a session: challenge, proof, hello, welcome or reject (sections 5, 7.8). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from towline.access.tokens import proof, same_secret
from towline.offload.messages import PROTOCOL, Auth, Challenge, Hello, Reject, Welcome
from towline.offload.registry import MAX_KERNELS

if TYPE_CHECKING:
    from random import Random

    from towline.offload.options import OffloadOptions
    from towline.offload.registry import KernelRegistry
    from towline.offload.sessions import Peer, Session

MAX_UNPROVEN_LINKS = 64
MAX_WORKERS = 1_024
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Doorkeeper:
    """Decides who may join a run."""

    def __init__(
        self, run: bytes, options: OffloadOptions, registry: KernelRegistry, random: Random, *, token: str = "",
        program: str | None = None, task: str | None = None, epoch: int | None = None,
    ) -> None:  # fmt: skip
        self.run, self._options, self._registry, self._random = run, options, registry, random
        self._token, self._program, self._task, self._epoch = token, program, task, epoch

    def challenge(self) -> Challenge:
        """Open the conversation of a new link."""
        return Challenge(self._random.randbytes(32), PROTOCOL, PROTOCOL)

    def admits(self, peer: Peer, auth: Auth) -> Reject | None:
        """Check the proof of a worker (OFF-802)."""
        expected = proof(self._token, "w", peer.nonce, auth.worker, auth.session, auth.nonce)
        if not same_secret(expected, auth.proof):
            return Reject("bad_token", "the proof does not fit the token of this run")
        if auth.protocol != PROTOCOL:
            return Reject("version", f"protocol {auth.protocol}, this side speaks {PROTOCOL}")
        return None

    def refuses(self, peer: Peer, hello: Hello, living: Session | None, workers: int) -> Reject | None:
        """Check everything else a worker says of itself."""
        if (hello.worker, hello.session) != (peer.name, peer.number):
            return Reject("bad_name", f"HELLO is from {hello.worker[:200]!r}, the proof was from {peer.name[:200]!r}")
        if not 1 <= len(hello.worker) <= 200 or _CONTROL.search(hello.worker):
            return Reject("bad_name", f"{hello.worker[:200]!r}: 1 to 200 characters without control characters")
        names = [offer.name for offer in hello.kernels]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            return Reject("bad_name", f"kernel {twice!r} is listed twice")
        if len(names) > MAX_KERNELS:
            return Reject("too_many", f"{len(names)} kernels, at most {MAX_KERNELS}")
        if workers >= MAX_WORKERS:
            return Reject("too_many", f"{workers} workers, at most {MAX_WORKERS}", 60.0)
        if hello.numeric.get("byteorder", "little") != "little":
            return Reject("endianness", f"{hello.numeric['byteorder']}-endian; this run is little-endian")
        if hello.run is not None and hello.run != self.run:
            return Reject("wrong_run", f"run {hello.run.hex()}, this is {self.run.hex()}")
        if hello.program is not None and self._program is not None and hello.program != self._program:
            return Reject("program_mismatch", f"program {hello.program}, this run has {self._program}")
        if living is not None:
            return Reject(
                "duplicate_session", f"{hello.worker!r} is connected already", self._options.liveness_timeout_s
            )
        return None

    def enter_kernels(self, session: Session, hello: Hello) -> None:
        """Note which of the worker's kernels are the master's too, and how the others differ (OFF-402)."""
        for number, offer in enumerate(hello.kernels, 1):
            if offer.name not in self._registry:
                continue
            mine = self._registry.get(offer.name)
            if mine.signature == offer.signature:
                session.kernels[offer.name] = number
            else:
                what = (
                    f"version {offer.version}, here {mine.version}" if offer.version != mine.version else "declaration"
                )
                session.other_kernels[offer.name] = f"{offer.name!r} on {session.worker} differs: {what}"

    def welcome(self, peer: Peer, session: Session) -> Welcome:
        """Answer a valid HELLO, with the master's own proof."""
        return Welcome(
            self.run, session.number, proof(self._token, "m", peer.authenticated or b"", self.run),
            list(session.kernels.items()), {**self._options.limits(), "shm": int(session.shm == "on")}, self._options.timers(), self._task, self._epoch,
        )  # fmt: skip
