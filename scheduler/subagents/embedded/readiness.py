"""Whether a server answers, and which one."""

from types import TracebackType
from typing import Any, Self, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

ANSWER_TIMEOUT = 1.0
"""Seconds that one question may take. A busy machine is slow; a server that never answers is asked again."""


class ReadinessProbe:
    """Asks the server at a url who it is. The process id tells our server from a stranger on the same port."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(  # pyright: ignore[reportUnknownMemberType]
            url,
            socket_timeout=ANSWER_TIMEOUT,
            socket_connect_timeout=ANSWER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
        self.loading = False

    def process_id(self) -> int | None:
        """Return the process id of the server that is ready at the url, or None. `loading`: it reads its data back."""
        try:
            facts = cast(dict[str, Any], self._client.info())
        except redis.RedisError:
            return None
        self.loading = bool(facts.get("loading"))
        return None if self.loading else int(facts["process_id"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._client.close()
