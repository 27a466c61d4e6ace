"""`python -m subagents_worker MODULE [MODULE …]`: worker processes under a supervisor."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys

from subagents import settings
from subagents.errors import CallerError, InfrastructureError
from subagents_worker.loading import load_agents
from subagents_worker.options import WorkerOptions
from subagents_worker.process import run_process
from subagents_worker.supervisor import PIPE_VARIABLE, WORKER_VARIABLE, Supervisor, command_for

USAGE, UNREACHABLE = 2, 3


def main() -> int:
    """Run workers until told to stop; the exit codes are those of the command line."""
    arguments = _parser().parse_args()
    url = os.environ.get(settings.REDIS_URL_VARIABLE)
    logging.basicConfig(level=os.environ.get("SUBAGENTS_LOG", "INFO").upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        if not url:
            raise CallerError(f"set {settings.REDIS_URL_VARIABLE} to the Redis server of the pool, for example redis://127.0.0.1:6379/0")
        options = WorkerOptions(
            url=url,
            pool=settings.pool_from_environment(),
            modules=tuple(arguments.modules),
            processes=arguments.processes,
            slots=arguments.slots,
            grace=arguments.grace,
            drain_timeout=arguments.drain_timeout,
        )
        registry = load_agents(options.modules)
        worker = os.environ.pop(WORKER_VARIABLE, None)
        if worker is None:
            return asyncio.run(_supervise(options))
        return run_process(options, registry, worker, int(os.environ.pop(PIPE_VARIABLE, "-1")))
    except CallerError as refused:
        print(f"subagents worker: {refused}", file=sys.stderr)
        return USAGE
    except InfrastructureError as failure:
        print(f"subagents worker: {failure}", file=sys.stderr)
        return UNREACHABLE


async def _supervise(options: WorkerOptions) -> int:
    return await Supervisor(options, command_for(options)).run()


def _parser() -> argparse.ArgumentParser:
    defaults = {name: field.default for name, field in WorkerOptions.__dataclass_fields__.items()}
    parser = argparse.ArgumentParser(prog="subagents worker", description="Run agents in worker processes.")
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="an importable module, or a .py file, that declares agents")
    parser.add_argument("--processes", type=int, default=defaults["processes"], help="worker processes (default: %(default)s)")
    parser.add_argument("--slots", type=int, default=defaults["slots"], help="agents that one process runs at once (default: %(default)s)")
    parser.add_argument("--grace", type=float, default=defaults["grace"], help="seconds that agents have to end (default: %(default)s)")
    parser.add_argument(
        "--drain-timeout", type=float, default=defaults["drain_timeout"], help="seconds to wait for agents (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
