"""The page as HTML: alone in one file with its data, or live, asking the scheduler for it.

Nothing on it comes from another host: script and style are inline and named by hash in the content security
policy, so the name of a cluster object can never become markup or code.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Any, Final

import orjson

DATA_PATH: Final = "/view/data"
FIXES_PATH: Final = "/view/fixes"


@cache
def _asset(name: str) -> str:
    return (resources.files("kai_cp.view") / "assets" / name).read_text("utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


@cache
def policy(*, live: bool) -> str:
    """The content security policy of the page; a live one may ask its own host for data."""
    rules = [
        "default-src 'none'",
        f"script-src {_hash(_asset('page.js'))}",
        f"style-src {_hash(_asset('page.css'))}",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join([*rules, "connect-src 'self'"] if live else rules)


def _embedded(document: Any) -> str:
    """JSON that cannot end its script element, whatever names are in it."""
    text = orjson.dumps(document).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def page(document: dict[str, Any] | None) -> str:
    """The whole page; without a document it asks ``DATA_PATH`` of the host it comes from."""
    live = document is None
    data = _embedded({"source": DATA_PATH} if document is None else document)
    parts = {
        "policy": policy(live=live),
        "style": _asset("page.css"),
        "script": _asset("page.js"),
        "data": data,
    }
    text = _asset("page.html")
    before, *rest = text.split("{{")
    made = [before]
    for piece in rest:
        name, after = piece.split("}}", 1)
        made += [parts[name], after]
    return "".join(made)
