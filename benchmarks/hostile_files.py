"""``kai-cp solve`` on hostile files: seconds against the budget, and memory against the limit.

``python -m benchmarks.hostile_files [--budget 2] [--attack NAME]`` writes every attack of
``tests/support/hostile.py`` to a file, and for every kind of object one file with bad values in its fields.
It runs the command on each file and prints a Markdown table: size, exit status, wall seconds and the most
memory of one of its processes. The worker may take the budget and a fifth of it, at least one second more.
The start and the end of the command, 0.5 to 1 s, come on top.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.load_cluster import descendants, memory_mib
from tests.hostile.test_reader import places
from tests.kai_cp.reader.rich import rich
from tests.support import hostile
from tests.support.objects import NOW

LOOK_SECONDS = 0.05
"""Between two looks at the memory."""
MOST_VALUES = 400
"""Objects in each file of bad values."""


def names() -> list[str]:
    """The attacks, and the kinds of object with bad values."""
    attacks = [attack.__name__ for attack in hostile.ATTACKS]
    return [*attacks, *(f"bad {kind}" for kind, items in sorted(rich()["rawObjects"].items()) if items)]


def write(name: str, path: str) -> int:
    """Write the snapshot of that name; returns the bytes of the file."""
    sizes = {attack.__name__: (attack, size) for attack, size in hostile.ATTACKS.items()}
    if name in sizes:
        raw = hostile.world(*sizes[name])
    else:
        kind = name.removeprefix("bad ")
        raw = spoiled(kind, rich()["rawObjects"][kind][0])
    return Path(path).write_text(json.dumps(raw))


def spoiled(kind: str, item: Any) -> Any:
    """A snapshot with copies of an object, each with one bad value in one of its fields."""
    raw = hostile.world(None, 0)
    copies = raw["rawObjects"].setdefault(kind, [])
    fields = len(places(item, []))
    for i in range(MOST_VALUES):
        made = copy.deepcopy(item)
        holder, key = places(made, [])[i % fields]
        holder[key] = copy.deepcopy(hostile.BAD_VALUES[i % len(hostile.BAD_VALUES)])
        if isinstance(made.get("metadata"), dict) and key != "name":
            made["metadata"]["name"] = f"bad-{i}"
        copies.append(made)
    return raw


def measured(path: str, budget: float) -> tuple[int, float, int]:
    """Exit status, seconds, and the most MiB that one process of the command had."""
    words = [sys.executable, "-m", "kai_cp", "solve", path, "--now", NOW.strftime("%Y-%m-%dT%H:%M:%SZ")]
    began, most = time.monotonic(), 0.0
    command = subprocess.Popen(
        [*words, "--budget", str(budget), "-o", "json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while command.poll() is None:
        with suppress(OSError):  # A process may end while it is looked at.
            most = max(most, *(memory_mib(pid, "VmHWM") for pid in (command.pid, *descendants(command.pid))))
        time.sleep(LOOK_SECONDS)
    return command.returncode, time.monotonic() - began, round(most)


def main() -> None:
    """Print the table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--budget", type=float, default=2.0)
    options.add_argument("--attack", default="")
    chosen = options.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; budget {chosen.budget:g} s")
    print("| file | MB | exit status | seconds | MiB |\n| --- | --: | --: | --: | --: |")
    # Another process makes the files, so their objects take no memory beside the command.
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as writer,
    ):
        path = str(Path(folder) / "snapshot.json")
        for name in names():
            if chosen.attack in name:
                size = writer.submit(write, name, path).result()
                status, seconds, memory = measured(path, chosen.budget)
                print(f"| {name} | {size / 1e6:.1f} | {status} | {seconds:.1f} | {memory} |", flush=True)


if __name__ == "__main__":
    main()
