"""Names: of pools, agent types, scopes and ids, and of the Redis keys that hang on a pool's prefix `sa:{pool}:`.

| key | type | what | kept |
|---|---|---|---|
| `config` | hash | schema version and settings; validated on every call | for good |
| `clock` | hash | pool time: `raw`, `now`, `wall` | for good |
| `seq`, `admissions` | int | spawn order; admission order | for good |
| `lanes` | zset lane -> head seq | the queue: every lane that is served, by its head | for good |
| `pending:<lane>` | zset id -> seq | one lane: `o:<type>`, `s:<type>` (survives interrupts), `@` (returning parents) | while queued |
| `unserved` | zset lane -> head seq | lanes whose type no live worker serves | for good |
| `active` | zset id -> lease end | the permits; their count is this set's size | for good |
| `waiting`, `bypass` | zset id -> lease end | agents that lent their permit; bypass runs | for good |
| `bypass:held` | zset id -> seq | bypass runs not dispatched yet | while held |
| `started` | zset id -> seq | running, waiting or stopping: what is on a worker | while on it |
| `stopping` | zset id -> since | told to stop, not yet out | while stopping |
| `agent:<id>`, `input:<id>`, `result:<id>`, `events:<id>` | hash, string, string, stream | one agent | until retention |
| `gone:<id>` | string | tombstone | 7 days |
| `key:<key>` | string -> id | spawn keys | as long as the agent or its tombstone |
| `scope:<scope>` | zset id -> seq | unsettled agents of a scope; every agent carries `*`, a descendant `@<ancestor>` | while unsettled |
| `cutoff`, `cutoff:forced`, `cutoff:cause`, `sweeping` | hash | interrupts: durable, O(1) | while they hit anyone; `*` for good |
| `aside`, `aside:<interrupt>:<lane>` | set, zset | lanes that an interrupt of everyone set aside | until cleared, in portions |
| `interrupts` | zset id -> at | interrupts whose sweep is not through | while open |
| `interrupt:<id>`, `…:agents`, `…:left` | hash, hash, zset | reports | 1 day |
| `events` | stream, capped | the history | capped |
| `settled` | zset id -> drop at | retention | capped by retention |
| `index:all`, `index:type:<t>`, `index:status:<s>`, `index:scope:<s>`, `index:tree:<root>` | zset id -> seq | lists | until retention |
| `workers`, `worker:<id>`, `held:<worker>`, `claim:<worker>` | zset, hash, set, hash | who lives, what it runs | lease |
| `types`, `serving:<type>` | hash, set | every type ever offered; who serves it now | for good, while served |
| `wake:<type>` | list of one | wake-up token | capped at one |
| `leader` | string | the scheduler that leads | its lease |
| channels `control`, `idle`, `client:<name>` | pub/sub | hints, never the truth | |

arq's own keys carry the same hash tag: `arq:queue:{pool}:<type>`, `arq:job:{pool}:<id>:<token>`, and that job's in-progress and retry keys.
"""

from __future__ import annotations

import re
import secrets

from subagents.errors import InvalidArgument

EVERYTHING = "*"
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SCOPE = re.compile(r"[A-Za-z0-9_.:/+=-][A-Za-z0-9_.:/@+=-]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{1,256}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def pool_name(name: str) -> str:
    """Return `name` if a pool or a semaphore may be called so: 1 to 64 letters, digits, `_`, `.` or `-`."""
    return _checked("pool name", name, _NAME, "1 to 64 letters, digits, '_', '.' or '-'")


def type_name(name: str) -> str:
    """Return `name` if an agent type may be called so: 1 to 64 letters, digits, `_`, `.` or `-`."""
    return _checked("agent type", name, _NAME, "1 to 64 letters, digits, '_', '.' or '-'")


def scope_name(name: str) -> str:
    """Return `name` if agents may carry it as a scope: 1 to 128 letters, digits or `_.:/@+=-`, not beginning with `@`."""
    return _checked(
        "scope", name, _SCOPE, "1 to 128 letters, digits or '_.:/@+=-', not beginning with '@'; '*' is everyone and never named at spawn"
    )


def spawn_key(key: str) -> str:
    """Return `key` if a spawn may be remembered by it: 1 to 256 visible ASCII characters."""
    return _checked("key", key, _KEY, "1 to 256 visible ASCII characters without spaces")


def is_agent_id(text: str) -> bool:
    """True if `text` could be the id of an agent or an interrupt; anything else was never issued."""
    return _ID.fullmatch(text) is not None


def new_id() -> str:
    """A new id for an agent, an interrupt or a client: 80 random bits, so that ids never meet and never tell anything."""
    return secrets.token_hex(10)


def nonce() -> str:
    """A new nonce for a script call: fencing tokens are made from it, so no token is ever used twice."""
    return secrets.token_hex(8)


def prefix(pool: str) -> str:
    """The prefix of every key of a pool."""
    return f"sa:{{{pool}}}:"


def semaphore_prefix(name: str) -> str:
    """The prefix of every key of a bare semaphore."""
    return f"sa:{{semaphore:{name}}}:"


def arq_queue(pool: str, type: str) -> str:
    """The arq queue on which admitted agents of a type travel."""
    return f"arq:queue:{{{pool}}}:{type}"


def arq_job_id(pool: str, agent_id: str, token: str) -> str:
    """The arq job id of one delivery of one agent."""
    return f"{{{pool}}}:{agent_id}:{token}"


def _checked(what: str, value: str, pattern: re.Pattern[str], expected: str) -> str:
    if not isinstance(value, str) or pattern.fullmatch(value) is None:  # pyright: ignore[reportUnnecessaryIsInstance] callers are not all typed
        raise InvalidArgument(f"{what} {value!r} is refused: expected {expected}")
    return value
