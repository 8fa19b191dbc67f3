"""Logs on standard error, as one JSON object per line or as plain text."""

from __future__ import annotations

import logging
import re
import sys
from typing import Any, Final

import orjson

from kai_cp.kube.api.api_objects import rfc3339
from kai_cp.printable import one_line

STANDARD: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """Time, level, logger, message, and the caller's extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        line = {
            "time": rfc3339(record.created)[:-1] + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _added(record)
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


class TextFormatter(logging.Formatter):
    """Plain text: time, level, message, and the caller's extra fields as ``key=value``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The record's first line."""
        added = (f"{key}={_short(value)}" for key, value in _added(record).items())
        return " ".join([one_line(super().formatMessage(record)), *added])


def _added(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in vars(record).items() if key not in STANDARD}


def _short(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and not re.search(r"[\s=\"]", value):
        return value
    return one_line(orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode())


def configure(*, json: bool = True, verbose: bool = False) -> None:
    """Send every log of this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    logging.getLogger("kubernetes").setLevel(logging.WARNING)
