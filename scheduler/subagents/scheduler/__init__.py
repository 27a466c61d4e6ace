"""The control process: repairs what crashed, carries interrupts through, and clears away what is over.

Every script admits and dispatches on its own, so a pool runs without it; with one it heals sooner and forgets in time.

`process` is the service, `rounds` what it does while it runs, `leader` who may do it; `housekeeping` and `retention` are the duties,
`failures` says what fails, and `fitness` refuses a server that cannot hold the promises.
"""

from subagents.scheduler.fitness import UnfitServer
from subagents.scheduler.process import Scheduler, SchedulerState

__all__ = ["Scheduler", "SchedulerState", "UnfitServer"]
