"""The command ``towline offload worker MODULE``: serve the kernels of a file or package (section 3, CLI)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from towline.errors.configuration import ConfigurationError
from towline.errors.offload import OffloadError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from towline.offload.records import AgentEnd

USAGE = "MODULE is file.py or package.module; its kernels are served."


def main(argv: Sequence[str] | None = None) -> int:
    """Run a kernel worker until it is told to end; returns the exit code.

    0 told to end, or drained; 2 the call is wrong or the master refused; 4 the master was not reached, or
    lost; 130 or 143 interrupted, after a drain.
    """
    import argparse

    parser = argparse.ArgumentParser(prog="towline offload worker", description=USAGE)
    parser.add_argument("module", metavar="MODULE")
    side = parser.add_mutually_exclusive_group(required=True)
    side.add_argument("--master", metavar="HOST:PORT", help="dial this master")
    side.add_argument("--listen", metavar="HOST:PORT", help="serve masters that dial; port 0 takes a free one")
    parser.add_argument("--name", help="unique among the workers of a master; default: host and process id")
    parser.add_argument("--slots", type=int, metavar="N", help="kernels at once; default: one per core")
    parser.add_argument(
        "--token-file", metavar="PATH", help="default: TOWLINE_TOKEN, or the file TOWLINE_TOKEN_FILE names"
    )
    parser.add_argument("--tls-cert", metavar="PATH")
    parser.add_argument("--tls-key", metavar="PATH")
    parser.add_argument("--tls-ca", metavar="PATH")
    parser.add_argument(
        "--cache-bytes", type=int, default=0, metavar="N", help="default: a quarter of memory, at most 4 GiB"
    )
    parser.add_argument("--device", action="append", default=[], metavar="D", help="cpu or cuda; may be repeated")
    parser.add_argument("--no-shm", action="store_true", help="use no shared memory")
    parser.add_argument(
        "--blas-threads", type=int, default=1, metavar="N", help="threads of BLAS per kernel; default 1"
    )
    parser.add_argument(
        "--master-timeout", type=float, default=60.0, metavar="S", help="end after so long without a master"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object per line")
    try:
        args = parser.parse_args(argv)
    except SystemExit as error:
        return int(error.code or 0)
    try:
        agent = _agent(args)
    except (OSError, ImportError, OffloadError, ConfigurationError, ValueError) as error:
        print(f"towline offload worker: {args.module}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return asyncio.run(_serve(agent, args))


def _agent(args: Any) -> Any:
    from towline.access.tokens import read_token

    # Pinned before numpy is loaded: OpenBLAS reads its variables once (OFF-421).
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(variable, str(args.blas_threads))
    from towline.offload.agent import WorkerAgent
    from towline.offload.options import AgentOptions, OffloadAccess
    from towline.offload.registry import KernelRegistry
    from towline.offload.tcp import TcpTransport

    kernels = KernelRegistry.from_module(args.module)
    if not kernels.names():
        raise ValueError("it declares no kernel; decorate functions with towline.offload.kernel(name)")
    token = read_token(os.environ, file=args.token_file) or ""
    access = OffloadAccess(token=token, tls_cert=args.tls_cert, tls_key=args.tls_key, tls_ca=args.tls_ca)
    options = AgentOptions(
        slots=args.slots, cache_bytes=args.cache_bytes, shm=not args.no_shm, blas_threads=args.blas_threads,
        devices=tuple(args.device) or ("cpu",), master_timeout_s=args.master_timeout,
    )  # fmt: skip
    transport = TcpTransport.listen(args.listen) if args.listen else TcpTransport.connect(args.master)
    return WorkerAgent(transport, kernels, options=options, access=access, name=args.name)


async def _serve(agent: Any, args: Any) -> int:
    loop = asyncio.get_running_loop()
    received: list[int] = []
    draining: list[asyncio.Task[None]] = []

    def interrupted(number: int) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(128 + number)
        draining.append(loop.create_task(agent.drain()))

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, interrupted, number)
    try:
        await agent.start()
    except (OSError, ConfigurationError) as error:
        print(f"towline offload worker: {error}", file=sys.stderr)  # noqa: T201
        return 2
    where = {"listening": agent.endpoint} if args.listen else {"master": args.master}
    _say(args.json, {"event": "started", "worker": agent.name, "kernels": list(agent._kernels.names()), **where})
    end: AgentEnd = await agent.serve()
    _say(args.json, {"event": "ended", "code": end.code, "reason": end.reason})
    return 128 + received[0] if received else end.code


def _say(as_json: bool, facts: dict[str, Any]) -> None:
    text = json.dumps(facts) if as_json else " ".join(f"{key}={value}" for key, value in facts.items())
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
