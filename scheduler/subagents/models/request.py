"""What a caller asks for when it spawns an agent."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticSerializationError, to_json

from subagents import keys
from subagents.errors import InputTooLarge, InvalidArgument, InvalidInput
from subagents.settings import MAX_INPUT_BYTES, milliseconds

OnInterrupt = Literal["stop", "survive"]
MAX_SCOPES = 16


class SpawnRequest(BaseModel):
    """One agent to spawn: its type, its input, and how it is to be handled.

    Args:
        type: the name under which a worker offers the agent function.
        input: what the function gets: a mapping of its arguments, or None; anything that JSON can say. At most 256 KiB.
        scopes: names that interrupts may aim at; at most 16.
        key: the same key again returns the same agent instead of a new one (P1).
        description: a line for people.
        timeout: seconds of running after which the agent is stopped as `error/timeout`; counted from its start (P14).
        stall_timeout: seconds without a sign of life after which it ends as `error/stalled`.
        retries: how many further attempts a lost or drained worker leaves it; 0..100.
        on_interrupt: `"survive"` agents and their children are stopped by forced interrupts only (I10).
        bypass_queue: run outside the limit, within the pool's `max_bypass` (P4).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: Annotated[str, AfterValidator(keys.type_name)]
    input: Any = None
    scopes: tuple[str, ...] = Field(default=(), max_length=MAX_SCOPES)
    key: Annotated[str, AfterValidator(keys.spawn_key)] | None = None
    description: str | None = Field(default=None, max_length=500)
    timeout: float | None = Field(default=None, gt=0, le=30 * 86400, strict=True)
    stall_timeout: float | None = Field(default=None, gt=0, le=30 * 86400, strict=True)
    retries: int = Field(default=0, ge=0, le=100, strict=True)
    on_interrupt: OnInterrupt = "stop"
    bypass_queue: bool = Field(default=False, strict=True)

    @field_validator("scopes")
    @classmethod
    def _scopes(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(keys.scope_name(scope) for scope in scopes))

    @classmethod
    def of(cls, **fields: Any) -> SpawnRequest:
        """A request from keyword arguments; a bad one is refused with one clear line."""
        try:
            return cls(**fields)
        except ValidationError as refused:
            first = refused.errors()[0]
            own = first.get("ctx", {}).get("error")  # a name that `keys` refused says all there is to say
            where = ".".join(map(str, first["loc"]))
            text = str(own) if isinstance(own, InvalidArgument) else f"{where}: {first['msg']}, not {first['input']!r}"
            raise InvalidArgument(text) from None

    def encoded_input(self) -> str:
        """The input as JSON text; refused if JSON cannot say it, or if it is too large (D6, E7)."""
        try:
            text = to_json(self.input, inf_nan_mode="constants")
        except (PydanticSerializationError, ValueError, RecursionError) as unserialisable:
            raise InvalidInput(f"the input of agent type {self.type!r} is no JSON: {unserialisable}") from None
        if len(text) > MAX_INPUT_BYTES:
            raise InputTooLarge(len(text), MAX_INPUT_BYTES)
        return text.decode()

    def wire(self, agent_id: str) -> tuple[str, ...]:
        """The request as the spawn script takes it."""
        encoded = self.encoded_input()
        policy = ("s" if self.on_interrupt == "survive" else "o") + ("b" if self.bypass_queue else "")
        timeout = "" if self.timeout is None else milliseconds(self.timeout)
        stall = "" if self.stall_timeout is None else milliseconds(self.stall_timeout)
        scopes, retries = ",".join(self.scopes), str(self.retries)
        payload = "\0".join((self.type, encoded, scopes, timeout, stall, retries, policy))
        fingerprint = hashlib.blake2b(payload.encode(), digest_size=12).hexdigest() if self.key else agent_id
        return (agent_id, self.type, encoded, scopes, self.key or "", fingerprint, self.description or "", timeout, stall, retries, policy)
