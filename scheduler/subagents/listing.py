"""Lists of records, page by page, newest first (P9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from subagents import keys, settings
from subagents.errors import InvalidArgument
from subagents.models import AgentRecord
from subagents.scripts import calls
from subagents.scripts.gateway import Gateway
from subagents.scripts.replies import Reply
from subagents.statuses import Status
from subagents.waits import record_of

LOOKS_PER_CALL = 500


@dataclass(frozen=True, slots=True)
class AgentPage(Sequence[AgentRecord]):
    """Some records, newest first, and the `cursor` of the next page (None: this was the last)."""

    records: tuple[AgentRecord, ...]
    cursor: str | None

    @overload
    def __getitem__(self, at: int) -> AgentRecord: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[AgentRecord, ...]: ...
    def __getitem__(self, at: int | slice) -> AgentRecord | tuple[AgentRecord, ...]:
        return self.records[at]

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[AgentRecord]:
        return iter(self.records)


async def page(
    gateway: Gateway,
    prefix: str,
    *,
    status: Status | str | None,
    type: str | None,
    scope: str | None,
    tree: str | None,
    limit: int,
    cursor: str | None,
) -> AgentPage:
    """Up to `limit` records that fit every filter; each call looks at a bounded number of entries and the next goes on."""
    settings.whole_number("limit", limit, 1, 1000)
    try:
        wanted = Status(status).value if status else ""
    except ValueError:
        raise InvalidArgument(f"status {status!r} is none of {', '.join(Status)}") from None
    if cursor is not None and not cursor.isdigit():
        raise InvalidArgument(f"cursor {cursor!r} is none that a page gave out")
    where = keys.EVERYTHING if scope == keys.EVERYTHING else keys.scope_name(scope) if scope else ""
    records: list[AgentRecord] = []
    below = cursor or "+inf"
    while True:
        reply = await gateway(
            calls.list_page(
                prefix,
                status=wanted,
                type=type or "",
                scope="" if where == keys.EVERYTHING else where,
                tree=tree or "",
                most=limit - len(records),
                below=below,
                looks=LOOKS_PER_CALL,
            )
        )
        records += [record_of(Reply.of(item)) for item in reply.lists(1)]
        below = reply.text(0)
        if not below or len(records) >= limit:
            return AgentPage(tuple(records), below or None)
