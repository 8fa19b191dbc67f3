"""``kai-cp admit``: runs admission on objects in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from kai_cp.admission.request import AdmissionRequest, read_request, read_settings
from kai_cp.admission.review import review
from kai_cp.cli.common import BAD_INPUT, complain, documents, fail
from kai_cp.reader.fields import Malformed

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def admit(
    inputs: Annotated[
        Path, typer.Argument(metavar="INPUTS", help="A directory of recorded requests, or one manifest.")
    ],
    outputs: Annotated[
        Path | None,
        typer.Argument(metavar="[OUTPUTS]", help="Directory for the verdicts. Default: print them."),
    ] = None,
    gpu_sharing: Annotated[
        bool, typer.Option("--gpu-sharing", help="Check manifests as if GPU sharing were on.")
    ] = False,
) -> None:
    """Say how admission changes objects in files, or why it refuses them."""
    files = sorted(inputs.glob("*.json")) if inputs.is_dir() else [inputs]
    if not files:
        fail(f"{inputs}: no .json file", BAD_INPUT)
    bad = 0
    for file in files:
        try:
            verdicts = [review(request).to_json() for request in _requests(file, gpu_sharing)]
        except (OSError, ValueError, Malformed) as problem:
            complain(f"{file}: {problem}")
            bad = BAD_INPUT
            continue
        for verdict in verdicts:
            if outputs is None:
                typer.echo(json.dumps(verdict, indent=2))
            else:
                outputs.mkdir(parents=True, exist_ok=True)
                (outputs / f"{file.stem}.json").write_text(json.dumps(verdict), "utf-8")
    if bad:
        raise typer.Exit(bad)


def _requests(file: Path, gpu_sharing: bool) -> list[AdmissionRequest]:
    found: list[AdmissionRequest] = []
    for document in documents(file):
        if not isinstance(document, dict):
            raise Malformed("document", "expected an object or a request")
        if "object" in document:
            found.append(read_request(document))
        else:
            settings: dict[str, Any] = {"gpuSharing": gpu_sharing}
            found.append(AdmissionRequest(read_settings(settings), "CREATE", document))
    return found
