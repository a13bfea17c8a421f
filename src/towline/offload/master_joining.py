"""How a worker joins: proof, hello, probes, live (sections 5, 7.8, OFF-420). Pure."""

from __future__ import annotations

import numpy as np

from towline.offload.actions import Close, Trust
from towline.offload.arrays import Array, bytes_of
from towline.offload.frames import Frame
from towline.offload.master_transfers import Transfers
from towline.offload.messages import (
    Auth,
    BufferRef,
    CallMessage,
    Hello,
    Reject,
    Result,
    ResultAck,
)
from towline.offload.probing import ECHO, fingerprint
from towline.offload.sessions import Peer, Session


class Joining(Transfers):
    """Sessions from AUTH to live, and to draining."""

    def _auth(self, peer: Peer, auth: Auth, now: float) -> None:
        refusal = self.doorkeeper.admits(peer, auth)
        if refusal is not None:
            self._reject(peer, refusal, now)
            return
        peer.authenticated, peer.name, peer.number, peer.greeted_at = auth.nonce, auth.worker, auth.session, now
        self._out.append(Trust(peer.link))

    def _hello(self, peer: Peer, hello: Hello, now: float) -> None:
        if peer.session is not None:
            if peer.session.living:
                self._send(peer.link, self.doorkeeper.welcome(peer, peer.session))
            return
        refusal = self.doorkeeper.refuses(peer, hello, self._names.get(hello.worker), len(self._names))
        if refusal is None and self.closing:
            refusal = Reject("draining", "the master is closing")
        if refusal is not None:
            self._reject(peer, refusal, now)
            return
        session = Session(self._next_uid, peer, hello, now)
        self._next_uid += 1
        self.doorkeeper.enter_kernels(session, hello)
        session.same_numeric = fingerprint(hello.numeric) == fingerprint(self._numeric)
        session.shm = self._shared_with(hello)
        peer.session = session
        self.sessions[session.uid] = session
        self._names[session.worker] = session
        self._send(peer.link, self.doorkeeper.welcome(peer, session))
        self._tell("worker_joined", now, session)

    def _shared_with(self, hello: Hello) -> str:
        if self._regions is None or not self.options.shm:
            return "off here"
        if not hello.shm:
            return "off there"
        if hello.host_id != self._host_id:
            return "another host or user"
        return "on" if self._regions.can_attach(hello.shm_trial) else "no common shared memory"

    def _reject(self, peer: Peer, refusal: Reject, now: float) -> None:
        self._send(peer.link, refusal)
        self._out.append(Close(peer.link, f"rejected: {refusal.reason}"))
        self.peers.pop(peer.link, None)
        self._tell(
            "worker_rejected", now, None, {"reason": refusal.reason, "worker": peer.name[:200], "peer": peer.peer}
        )

    def _begin_probing(self, session: Session, now: float) -> None:
        session.state = "probing"
        session.probe_at = session.echo_at = now
        for name, kid, inputs, writes, params in self.prober.plan(session):
            number, fence = self.scheduler.take_number(), self.scheduler.take_fence()
            session.probes[number] = name
            refs, body = [], []
            for array in inputs:
                refs.append(BufferRef(0, 0, array.dtype.str, list(array.shape), array.nbytes))
                body.append(bytes_of(array))
            outs = [
                BufferRef(0, 0, text, list(shape), int(np.prod(shape)) * np.dtype(text).itemsize)
                for shape, text in writes
            ]
            message = CallMessage(number, fence, 1, kid, params, refs, outs, (1 << len(refs)) - 1, 30.0)
            self._send_bulk(session, Frame(message, tuple(body), flags=self._digest_flag()))

    def _probe_result(self, session: Session, message: Result, arrays: list[Array], now: float) -> None:
        name = session.probes.pop(message.call)
        session.probe_at = now
        self._send(session.link, ResultAck(message.call, message.fence, "committed"))
        if name == ECHO:
            elapsed = max(now - session.echo_at, 1e-6)
            if (size := sum(array.nbytes for array in arrays)) and elapsed:
                session.measure_up(2 * size / elapsed)
                session.measure_down(2 * size / elapsed)
        elif (problem := self.prober.compare(name, message, arrays)) is not None:
            session.refused_kernels[name] = f"{problem} on {session.worker}"
            self._warn(name, "numeric_mismatch", session.refused_kernels[name], now, session)
        if not session.probes:
            self._become_live(session, now)

    def _become_live(self, session: Session, now: float) -> None:
        for name in session.probes.values():
            if name != ECHO:
                session.refused_kernels[name] = f"its probe got no answer on {session.worker}"
        session.probes.clear()
        for name in session.kernels:
            doubt = self.prober.unverified(name, session)
            if doubt is None:
                continue
            if self.options.numeric == "strict":
                session.refused_kernels[name] = doubt
            else:
                self._tell("worker_unverified", now, session, {"kernel": name, "because": doubt})
        session.state = "live"
        self._tell("worker_probed", now, session)
        self.scheduler.reconsider(now)
        self.scheduler.advance(now)

    def _draining(self, session: Session, now: float) -> None:
        if session.state in ("joining", "probing", "live", "suspect"):
            session.state = "draining"
            self._tell("worker_draining", now, session)
