"""Write everything of the Helm chart that has its source elsewhere: ``python deploy/make_chart.py``.

| file of the chart | source |
|---|---|
| ``values.yaml``, ``values.schema.json``, ``README.md`` (its table) | ``deploy/chart_values.py`` |
| ``files/rights.yaml`` | ``kai_cp/kube/api/access.py`` |
| ``files/crds/`` | ``kai_cp/kube/crds/`` |
| ``files/webhooks.yaml`` | ``kai_cp/kube/admission/registration.py``, as ``kai-cp webhooks`` prints it |
| ``files/dashboards/`` | ``deploy/dashboards.py`` |
| ``Chart.yaml`` (its versions) | ``pyproject.toml`` |

``outputs()`` says what each file must hold; a test compares. All other files of the chart are sources.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import BaseModel, ValidationError

DEPLOY: Final = Path(__file__).parent
ROOT: Final = DEPLOY.parent
CHART: Final = DEPLOY / "chart" / "kai-cp"
BEGIN, END = "<!-- values: begin -->", "<!-- values: end -->"

sys.path.insert(0, str(DEPLOY))

from chart_rights import rights  # noqa: E402
from chart_values import ChartValues, Resources  # noqa: E402
from dashboards import DASHBOARDS, document  # noqa: E402

from kai_cp.kube.admission.options import RegistrationOptions  # noqa: E402
from kai_cp.kube.admission.registration import configurations  # noqa: E402


def defaults() -> dict[str, Any]:
    """The default values as a tree."""
    return ChartValues().model_dump(exclude_none=True)


def _needed(model: BaseModel) -> Iterator[tuple[str, list[str]]]:
    """By model, the values that the templates cannot do without: Helm takes those out that are set to null.

    They can without quantities, maps and lists (no shards: no scheduler), and texts that may be empty.
    """
    names = []
    for name, _, value in _fields(model):
        if isinstance(value, BaseModel) and not isinstance(value, Resources):
            yield from _needed(value)
            names.append(name)
        elif value and isinstance(value, (int, str)) and not _may_be_empty(type(model), name):
            names.append(name)
    yield type(model).__name__, names


def _may_be_empty(model: type[BaseModel], name: str) -> bool:
    """Whether the field is a text that may be empty."""
    try:
        model(**{name: ""})
    except ValidationError:
        return False
    return True


def schema() -> str:
    """``values.schema.json``: JSON Schema, with the references resolved where Helm needs none."""
    made = ChartValues.model_json_schema()
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema", **made, "title": "Values of kai-cp"}
    for name, needed in _needed(ChartValues()):
        if needed:
            (made["$defs"].get(name) or made)["required"] = needed
    # Helm adds `global` to the values of a chart that is a part of another one.
    made["properties"]["global"] = {"type": "object", "description": "Ignored."}
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"


def _fields(model: BaseModel) -> Iterator[tuple[str, str, Any]]:
    for name, field in type(model).model_fields.items():
        yield name, field.description or "", getattr(model, name)


def _values(model: BaseModel, depth: int = 0) -> Iterator[str]:
    indent = "  " * depth
    for name, description, value in _fields(model):
        if value is None:
            continue
        if depth == 0 and isinstance(value, BaseModel):
            yield ""
        yield f"{indent}# {description}"
        if isinstance(value, BaseModel):
            nested = list(_values(value, depth + 1))
            yield f"{indent}{name}:" + ("" if nested else " {}")
            yield from nested
        elif value and isinstance(value, list) and isinstance(value[0], BaseModel):
            yield f"{indent}{name}:"
            for item in value:
                given = item.model_dump(exclude_defaults=True)
                yield f"{indent}  - {json.dumps(given)}"
        else:
            yield f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}"


def values() -> str:
    """``values.yaml``: every default with its description as a comment."""
    head = "# Written by deploy/make_chart.py from deploy/chart_values.py.\n"
    return head + "\n".join(_values(ChartValues())) + "\n"


def _rows(model: BaseModel, prefix: str = "") -> Iterator[str]:
    for name, description, value in _fields(model):
        key = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _rows(value, f"{key}.")
            continue
        items = value if isinstance(value, list) and value and isinstance(value[0], BaseModel) else []
        given = [item.model_dump(exclude_defaults=True) for item in items] or value
        shown = "" if given is None else json.dumps(given)
        text = description.replace("|", "\\|")
        yield f"| `{key}` | {f'`{shown}`' if shown else ''} | {text} |"
        for item in items:
            yield from _rows(item, f"{key}[].")


def readme() -> str:
    """The chart's page with the table of values made anew."""
    page = (CHART / "README.md").read_text("utf-8")
    table = "\n".join(["| value | default | meaning |", "|---|---|---|", *_rows(ChartValues())])
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def chart() -> str:
    """``Chart.yaml`` with the version of the program."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    text = (CHART / "Chart.yaml").read_text("utf-8")
    text = re.sub(r"(?m)^version: .*$", f"version: {version}", text)
    return re.sub(r"(?m)^appVersion: .*$", f'appVersion: "{version}"', text)


def webhooks() -> str:
    """``files/webhooks.yaml``: the registrations with their defaults; the template puts the values in."""
    head = "# Written by deploy/make_chart.py, as `kai-cp webhooks` prints it.\n"
    return head + yaml.safe_dump_all(configurations(RegistrationOptions()), sort_keys=False)


def outputs() -> dict[Path, str]:
    """What each generated file must hold."""
    made = {
        CHART / "Chart.yaml": chart(),
        CHART / "values.yaml": values(),
        CHART / "values.schema.json": schema(),
        CHART / "README.md": readme(),
        CHART / "files" / "rights.yaml": rights(),
        CHART / "files" / "webhooks.yaml": webhooks(),
    }
    for dashboard in DASHBOARDS:
        made[CHART / "files" / "dashboards" / f"{dashboard.uid.removeprefix('kai-cp-')}.json"] = document(
            dashboard
        )
    for definition in sorted((ROOT / "kai_cp" / "kube" / "crds").glob("*.yaml")):
        made[CHART / "files" / "crds" / definition.name] = definition.read_text("utf-8")
    return made


if __name__ == "__main__":
    for path, text in outputs().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
