"""Command line flags from dataclasses: each field is one option of a command."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from kai_cp.kube.api.lease import LeaseTimes
from kai_cp.reader.fields import Malformed
from kai_cp.reader.times import duration as go_duration


def seconds(text: str | float) -> float:
    """The seconds of a Go duration (``1m30s``) or a plain number. Raises ``BadParameter`` for anything
    else.
    """
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(go_duration(str(text), "duration"))
    except Malformed as problem:
        raise typer.BadParameter(str(problem)) from None


def Seconds(help: str) -> Any:
    """An option of type ``float`` that takes a duration."""
    return typer.Option(help=help, parser=seconds, metavar="DURATION")


def _lease_times(text: str | LeaseTimes) -> LeaseTimes:
    try:
        duration, renew, retry = (float(part) for part in str(text).split(","))
    except ValueError:
        raise typer.BadParameter(f"{str(text)!r} is not three numbers such as 15,10,5") from None
    try:
        return LeaseTimes(duration, renew, retry)
    except ValueError as problem:
        raise typer.BadParameter(str(problem)) from None


LeaseFlag = Annotated[
    LeaseTimes,
    typer.Option(
        "--lease-seconds",
        help="Lease duration, renew deadline and retry period.",
        parser=_lease_times,
        metavar="S,S,S",
    ),
]


def _grouped(hint: Any, bundle: Any) -> Any:
    """The annotation of a field; the help shows it under its dataclass's name (``Binder options``)."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", bundle.__name__.removesuffix("Options"))
    for option in getattr(hint, "__metadata__", ()):
        if isinstance(option, OptionInfo):
            option.rich_help_panel = option.rich_help_panel or f"{words.capitalize()} options"
    return hint


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each dataclass parameter replaced by one option per field.

    A field's annotation may carry a ``typer.Option``; the field's default is the option's default.
    """
    signature = inspect.signature(command, eval_str=True)
    bundles: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        if not is_dataclass(parameter.annotation):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        bundles[parameter.name] = parameter.annotation
        hints = get_type_hints(parameter.annotation, include_extras=True)
        for field in fields(parameter.annotation):
            flag = inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default)
            parameters.append(flag.replace(annotation=_grouped(hints[field.name], parameter.annotation)))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, bundle in bundles.items():
            given[name] = bundle(**{field.name: given.pop(field.name) for field in fields(bundle)})
        command(**given)

    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
