"""The input of ``kai-cp migrate``: files, or the Config and the shards of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from kai_cp import yaml_text
from kai_cp.files import read_text
from kai_cp.kube.api import resources as r
from kai_cp.kube.api.errors import ApiError
from kai_cp.kube.serving.process import Connection, Lifecycle, connect

Documents = list[tuple[str, Mapping[str, Any]]]


class UnreadableFile(Exception):
    """A file that cannot be read; the text names it."""


def from_files(files: Sequence[Path]) -> Documents:
    """Every document of the files with its file's name. Raises ``UnreadableFile``."""
    found: Documents = []
    for file in files:
        try:
            documents = yaml_text.load_all(read_text(file))
        except (OSError, yaml.YAMLError) as problem:
            raise UnreadableFile(f"{file}: {yaml_text.why(problem)}") from None
        documents = [document for document in documents if document is not None]
        if not documents:
            raise UnreadableFile(f"{file}: holds no object")
        for document in documents:
            if not isinstance(document, dict):
                raise UnreadableFile(f"{file}: expected keys and values")
            items = document["items"] if isinstance(document.get("items"), list) else [document]
            found += [(file.name, item) for item in items if isinstance(item, dict)]
    return found


def from_cluster(connection: Connection) -> Documents:
    """``kai-config`` and every shard; a kind that the cluster does not serve has no objects."""
    transport = connect(connection, "reader", Lifecycle())
    found: Documents = []
    try:
        for resource in (r.CONFIGS, r.SHARDS):
            try:
                items, _ = transport.list_pages(resource)
            except ApiError as error:
                if error.status != 404:
                    raise
                continue
            # Items of a list do not name their kind.
            found += [(item["metadata"]["name"], {**item, "kind": resource.kind}) for item in items]
    finally:
        transport.close()
    return found
