"""Agent types: named async functions that a worker can run, with inputs and output validated from their annotations."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError, create_model
from pydantic_core import from_json

from subagents import keys, settings
from subagents.errors import InvalidArgument, InvalidInput

AgentFunction = Callable[..., Awaitable[Any]]
F = TypeVar("F", bound=AgentFunction)


@dataclass(frozen=True, slots=True)
class AgentType:
    """One agent type as a worker offers it.

    `timeout` and `stall_timeout` (seconds) hold where a spawn does not say otherwise.
    """

    name: str
    function: AgentFunction
    timeout: float | None
    stall_timeout: float | None
    takes_context: bool
    parameters: tuple[str, ...]
    input_model: type[BaseModel]
    output: TypeAdapter[Any] | None

    def arguments(self, encoded: str) -> dict[str, Any]:
        """The function's arguments from an agent's input; `InvalidInput` says what does not fit."""
        value: Any = from_json(encoded)
        if value is None:
            value = {}
        elif not isinstance(value, dict):
            if len(self.parameters) != 1:
                raise InvalidInput(f"agent type {self.name!r} takes {self._signature()}, not {type(value).__name__}")
            value = {self.parameters[0]: value}
        try:
            model = self.input_model.model_validate(value)
        except ValidationError as refused:
            first = refused.errors()[0]
            where = ".".join(map(str, first["loc"])) or "input"
            raise InvalidInput(f"agent type {self.name!r} takes {self._signature()}: {where}: {first['msg']}") from None
        return {name: getattr(model, name) for name in model.model_fields_set | set(self.parameters)} | (model.model_extra or {})

    def checked_output(self, value: Any) -> Any:
        """The value, if it is what the function's return annotation says."""
        return value if self.output is None else self.output.validate_python(value)

    def description(self) -> str:
        """The type as workers publish it: JSON with the schema of its input."""
        return json.dumps({"input": self.input_model.model_json_schema()}, separators=(",", ":"), sort_keys=True)

    def _signature(self) -> str:
        return f"({', '.join(self.parameters)})"


class Registry:
    """The agent types of a worker."""

    def __init__(self) -> None:
        self._types: dict[str, AgentType] = {}

    def __repr__(self) -> str:
        return f"Registry({', '.join(self._types)})"

    def __len__(self) -> int:
        return len(self._types)

    def __iter__(self) -> Iterator[AgentType]:
        return iter(self._types.values())

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __getitem__(self, name: str) -> AgentType:
        return self._types[name]

    def only(self, name: str) -> Registry:
        """A registry with just one of the types."""
        one = Registry()
        one._types[name] = self._types[name]
        return one

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the types."""
        return tuple(self._types)

    def descriptions(self) -> Mapping[str, str]:
        """What is published of each type."""
        return {type.name: type.description() for type in self}

    def agent(self, name: str, *, timeout: float | None = None, stall_timeout: float | None = None) -> Callable[[F], F]:
        """Declare an async function as an agent type. Its first parameter, if it is called `ctx` or annotated so, gets the context.

        Args:
            name: 1 to 64 letters, digits, `_`, `.`, `-`.
            timeout: seconds of running after which it is stopped as `error/timeout`.
            stall_timeout: seconds without a sign of life after which it ends as `error/stalled`.
        """
        keys.type_name(name)
        for option, value in (("timeout", timeout), ("stall_timeout", stall_timeout)):
            if value is not None:
                settings.seconds(option, value, 0.001, 30 * 86400)

        def declare(function: F) -> F:
            known = self._types.get(name)
            if known is not None and known.function is not function:
                raise InvalidArgument(f"agent type {name!r} is declared twice: by {_place(known.function)} and by {_place(function)}")
            self._types[name] = _agent_type(name, function, timeout, stall_timeout)
            return function

        return declare


def _place(function: AgentFunction) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _agent_type(name: str, function: AgentFunction, timeout: float | None, stall_timeout: float | None) -> AgentType:
    if not inspect.iscoroutinefunction(function):
        raise InvalidArgument(f"agent type {name!r}: {_place(function)} must be an `async def` function")
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as unresolved:
        raise InvalidArgument(f"agent type {name!r}: an annotation of {_place(function)} does not resolve: {unresolved}") from None
    parameters = list(inspect.signature(function).parameters.values())
    takes_context = bool(parameters) and (
        parameters[0].name == "ctx" or getattr(hints.get(parameters[0].name), "__name__", "") == "AgentContext"
    )
    fields: dict[str, Any] = {}
    extra: Any = "forbid"
    for parameter in parameters[takes_context:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            extra = "allow"
        elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise InvalidArgument(f"agent type {name!r}: parameter {parameter.name!r} of {_place(function)} cannot be passed by name")
        else:
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints.get(parameter.name, Any), default)
    model = create_model(f"{name} input", __config__=ConfigDict(extra=extra, arbitrary_types_allowed=False), **fields)
    returned = hints.get("return", Any)
    output: TypeAdapter[Any] | None = None if returned in (Any, type(None), object) else TypeAdapter(returned)
    return AgentType(name, function, timeout, stall_timeout, takes_context, tuple(fields), model, output)


default_registry = Registry()
agent = default_registry.agent
