"""``kai-cp admit``: runs admission on objects in files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.admission.request import AdmissionRequest, read_request, read_settings
from kai_cp.admission.review import review
from kai_cp.cli.manifests import read_manifests, write_answers
from kai_cp.cli.options import INPUT, DocumentFormatOption
from kai_cp.cli.output import DocumentFormat
from kai_cp.reader.fields import Malformed, name_at, object_at, text_at

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def admit(
    inputs: Annotated[
        Path,
        typer.Argument(
            metavar="INPUTS",
            help="A file of manifests (.yaml, .json), recorded requests or AdmissionReviews, a directory of "
            "them, or - for standard input.",
        ),
    ],
    outputs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUTPUTS]",
            help="Directory for one NAME.json (.yaml) for each file. Default: standard output.",
        ),
    ] = None,
    format: DocumentFormatOption = DocumentFormat.JSON,
    gpu_sharing: Annotated[
        bool,
        typer.Option(
            "--gpu-sharing",
            help="Check manifests and reviews as if GPU sharing were on. Default: off, as in KAI.",
            rich_help_panel=INPUT,
        ),
    ] = False,
) -> None:
    """Say how admission would change objects in files, or why it would refuse them, without a cluster.

    Each verdict names its object. A manifest is judged as if it were created; objects of other kinds are
    allowed unchanged. What is refused is also named on standard error.

    Exit status: 0 all allowed, 1 an object is refused, or a file or an object is bad, 2 wrong usage.

    Examples:
    kai-cp admit pod.yaml --gpu-sharing
    kai-cp admit manifests/ > verdicts.json || echo "some are refused"
    """

    def answer(file: Path) -> tuple[list[Any], list[str]]:
        objects, problems = read_manifests(file)
        verdicts: list[Any] = []
        for where, one in objects:
            try:
                verdict = _verdict(_request(one, gpu_sharing))
            except Malformed as problem:
                problems.append(f"{where}: {problem}")
                continue
            verdicts.append(verdict)
            if not verdict["allowed"]:
                problems.append(_refusal(verdict))
        return verdicts, problems

    write_answers(inputs, outputs, format, answer)


def _verdict(request: AdmissionRequest) -> dict[str, Any]:
    meta = request.object.get("metadata")
    named: Mapping[str, Any] = meta if isinstance(meta, dict) else {}
    said = {
        "kind": request.object["kind"],
        "namespace": named.get("namespace") or request.namespace,
        "name": named.get("name") or named.get("generateName"),
    }
    return {
        **{key: value for key, value in said.items() if value and isinstance(value, str)},
        **review(request).to_json(),
    }


def _refusal(verdict: Mapping[str, Any]) -> str:
    name = "/".join(verdict[key] for key in ("namespace", "name") if key in verdict)
    return f"{verdict['kind']} {name or '(without a name)'} is refused: {verdict['message']}"


def _request(document: Mapping[str, Any], gpu_sharing: bool) -> AdmissionRequest:
    """The request that one document stands for. Raises ``Malformed``."""
    settings: dict[str, Any] = {"gpuSharing": gpu_sharing}
    if document.get("kind") == "AdmissionReview":
        asked = object_at(document, "request")
        if text_at(asked, "operation", "request") == "DELETE":
            asked = {**asked, "object": asked.get("oldObject")}
        try:
            found = read_request({**asked, "settings": settings})
        except Malformed as problem:
            raise problem.below("request") from None
    elif "object" in document and "kind" not in document:
        found = read_request(document)
    else:
        found = AdmissionRequest(read_settings(settings), "CREATE", document)
    name_at(found.object, "kind", "" if found.object is document else "object")
    return found
