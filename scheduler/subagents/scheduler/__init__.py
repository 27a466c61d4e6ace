"""The control process: repairs what crashed, carries interrupts through, and clears away what is over.

Every script admits and dispatches on its own, so a pool runs without it; with one it heals sooner and forgets in time.
"""

from subagents.scheduler.process import Scheduler, SchedulerState

__all__ = ["Scheduler", "SchedulerState"]
