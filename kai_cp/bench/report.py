"""One self-contained HTML page of benchmark results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from statistics import fmean
from typing import Final

from kai_cp.bench import plots
from kai_cp.bench.records import (
    BoundResult,
    CaseResult,
    MattersResult,
    Peer,
    PolicyResult,
    Result,
    SimulationResult,
)
from kai_cp.bench.table import (
    STARTS,
    answered,
    difference,
    gained,
    pair,
    second_cycle,
    starts_row,
    to_gain,
)

STYLE: Final = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1280px;padding:0 1rem;color:#1d2530}
h1{font-size:1.6rem;margin-bottom:.2rem}h2{margin-top:2.2rem;border-bottom:1px solid #d9dee5}
p.note{color:#4a5666;max-width:75ch}figure{margin:1.2rem 0}figcaption{color:#4a5666;font-size:.9rem}
figure svg{max-width:100%;height:auto}.plots{display:grid;gap:.5rem 1.5rem;
grid-template-columns:repeat(auto-fit,minmax(min(30rem,100%),1fr))}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px;margin:.8rem 0}
th,td{padding:.22rem .6rem;text-align:right;border-bottom:1px solid #e8ecf1;white-space:nowrap}
th{background:#f4f6f9;position:sticky;top:0;white-space:normal;vertical-align:bottom}td:first-child,th:first-child,.words,.text{text-align:left}
.text{white-space:normal;min-width:12rem}
.good{color:#256d32;font-weight:600}.bad{color:#b3202c;font-weight:600}
@media(prefers-color-scheme:dark){:root{color-scheme:dark}body{background:#14181f;color:#dde3ea}
p.note,figcaption{color:#a3afbd}h2{border-color:#323a45}th{background:#1e242d}th,td{border-color:#2a323d}
.good{color:#7ccf8a}.bad{color:#f08a8a}figure svg{background:#fff;border-radius:6px}}
"""


def page(results: Sequence[Result]) -> str:
    """The page; sections appear for the kinds of results there are."""
    cases = [r for r in results if isinstance(r, CaseResult)]
    policies = [r for r in results if isinstance(r, PolicyResult)]
    bounds = [r for r in results if isinstance(r, BoundResult)]
    runs = [r for r in results if isinstance(r, SimulationResult)]
    matters = [r for r in results if isinstance(r, MattersResult)]
    parts = [_head(results)]
    if cases:
        parts.append(_cases(cases))
    if policies or bounds:
        parts.append(_openb(policies, bounds))
    if plain := [run for run in runs if run.promises is None]:
        parts.append(_gangs(plain))
    if dated := [run for run in runs if run.promises is not None]:
        parts.append(_starts(dated))
    if matters:
        parts.append(_matters(matters))
    body = "\n".join(parts)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>kai_cp benchmark</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style></head>'
        f"<body>\n{body}\n</body></html>\n"
    )


def _head(results: Sequence[Result]) -> str:
    wrong = [f"{r.case}: {line}" for r in results for line in getattr(r, "errors", ())]
    verdict = (
        f'<p class="bad">{len(wrong)} answers broke a rule:</p><ul>'
        + "".join(f"<li>{escape(line)}</li>" for line in wrong[:50])
        + "</ul>"
        if wrong
        else '<p class="good">Every answer passed the independent checker.</p>'
    )
    origins = {r.origin.model_dump_json(): r.origin for r in results}.values()
    rows = [
        (o.machine, o.cores, f"{o.memory_gib:g} GiB", o.python, _versions(o.versions), o.commit, o.settings)
        for o in origins
    ]
    head = ("machine", "cores", "memory", "Python", "versions", "commit", "settings")
    return (
        "<h1>kai_cp: benchmark results</h1>"
        '<p class="note">kai_cp plans pods on GPU clusters. Each line below is one measured case: how long a '
        "decision took, how good it is, and how far it can be from the best possible answer. Times are of "
        "the machine named here and compare only with others of the same run.</p>"
        f"{verdict}{_table(head, rows)}"
    )


def _cases(cases: Sequence[CaseResult]) -> str:
    cases = sorted(cases, key=lambda c: (c.suite, c.case))
    names = {c.peer.name for c in cases if c.peer is not None}
    beside = f" / {escape(names.pop())}" if len(names) == 1 else ""
    return (
        "<h2>Whole cycles</h2>"
        '<p class="note"><b>decide</b> is the time from the parsed cluster to the checked plan: prepare, '
        "model (orders, greedy places, models), solve (inside CP-SAT) and check. "
        "<b>Admitted</b>: GPUs that waiting pods get, now or once pods that leave are gone. "
        "<b>Lost</b>: GPUs "
        "of pods that are stopped and get no other place. <b>Moved</b> pods are stopped and started "
        "elsewhere. "
        "<b>Gap</b>: how much of the most that could be gained is not; <b>stage gap</b>: the largest proven "
        "distance of a stage to its bound, none where the answer is <i>all proved</i>. "
        "<b>Groups only one admits</b>: + only here, − only there. <b>First difference</b>: walking "
        "the waiting pod groups in the fair order, the first that only one answer admits: whose, which, "
        "and at what place in the order. <b>Ratios</b>: ours by theirs.</p>"
        f"{_verdict(cases)}"
        + '<div class="plots">'
        + _figure(
            plots.time_against_size(cases),
            "Time of a decision against the size of the cluster; lower is better.",
        )
        + _figure(plots.quality_against_time(cases), "Each dot is a case: above 1 more GPUs are admitted.")
        + _figure(plots.anytime(cases), "Anytime curves: how soon the answer is how good.")
        + _figure(plots.gaps(cases), "Stage gaps that are not 0, at most the 40 largest.")
        + _figure(plots.memory_against_size(cases), "Peak memory of the process that reads and decides.")
        + "</div>"
        + _answers(cases, beside)
        + _times(cases, beside)
        + _stages(cases)
    )


def _answers(cases: Sequence[CaseResult], beside: str) -> str:
    head = [
        "case",
        "answer",
        "stage gap",
        "GPUs gained of most",
        "gap",
        *(f"{name}{beside}" for name in ("GPUs admitted", "GPUs lost", "pods moved", "groups left")),
    ]
    compared = any(c.peer is not None for c in cases)
    if compared:
        head += ["groups only one admits", "first difference", "ratio of time, admitted, lost"]
    rows = []
    for c in cases:
        theirs = None if c.peer is None else c.peer.outcome
        ours = c.outcome
        row = [
            c.case,
            answered(c),
            f"{c.gap:.2%}",
            gained(c),
            to_gain(c),
            pair(f"{ours.admitted_gpus:g}", None if theirs is None else f"{theirs.admitted_gpus:g}"),
            pair(f"{ours.lost_gpus:g}", None if theirs is None else f"{theirs.lost_gpus:g}"),
            pair(str(ours.moved_pods), None if theirs is None else str(theirs.moved_pods)),
            pair(str(ours.groups_left), None if theirs is None else str(theirs.groups_left)),
        ]
        if compared and c.peer is not None:
            known = theirs is not None
            row.append(f"+{c.peer.only_here} −{c.peer.only_there}" if known else "")
            row.append(difference(c.peer) if known else "")
            row.append(_ratios(c, c.peer))
        rows.append(row)
    return _table(head, rows)


def _times(cases: Sequence[CaseResult], beside: str) -> str:
    phases = ("read", "prepare", "model", "solve", "check")
    head = (
        "case",
        "nodes",
        "pods running + waiting",
        *(f"{phase} s" for phase in phases),
        f"decide s{beside}",
        "processor s",
        "second cycle s (of the first; processor; to the first answer)",
        "memory MiB",
    )
    rows = [
        (
            c.case,
            f"{c.nodes:,}",
            f"{c.running_pods:,} + {c.pending_pods:,}",
            *(f"{c.seconds.get(phase, 0.0):.2f}" for phase in phases),
            pair(f"{c.seconds['decide']:.2f}", None if c.peer is None else _seconds(c.peer.seconds)),
            f"{c.seconds.get('decide_cpu', 0.0):.2f}",
            second_cycle(c),
            f"{c.peak_memory_mib:,.0f}",
        )
        for c in cases
    ]
    return _table(head, rows)


def _verdict(cases: Sequence[CaseResult]) -> str:
    """One line that counts the first differences in favour of each side."""
    compared = [c.peer for c in cases if c.peer is not None and c.peer.outcome is not None]
    if not compared:
        return ""
    ours = sum(peer.first is not None and peer.first.here for peer in compared)
    theirs = sum(peer.first is not None and not peer.first.here for peer in compared)
    return (
        f'<p class="{"bad" if theirs else "good"}">First difference in the fair order, over '
        f"{len(compared)} compared cases: ours in {ours}, theirs in {theirs}, "
        f"none in {len(compared) - ours - theirs}.</p>"
    )


def _ratios(case: CaseResult, peer: Peer) -> str:
    pairs = [(case.seconds["decide"], peer.seconds)]
    if peer.outcome is not None:
        pairs.append((case.outcome.admitted_gpus, peer.outcome.admitted_gpus))
        pairs.append((case.outcome.lost_gpus, peer.outcome.lost_gpus))
    return ", ".join(f"{ours / theirs:.3g}" if theirs else "–" for ours, theirs in pairs)


def _stages(cases: Sequence[CaseResult]) -> str:
    head = ("case", "stage", "status", "objective", "bound", "gap", "variables", "constraints", "s")
    rows = [
        (
            c.case,
            s["name"],
            s["status"].lower(),
            *("–" if value is None else f"{value:g}" for value in (s["objective"], s["bound"])),
            f"{s['gap']:.2%}",
            f"{s['variables']:,}",
            f"{s['constraints']:,}",
            f"{s['seconds']:.2f}",
        )
        for c in cases
        for s in c.stages
    ]
    return f"<details><summary>Every stage: status, objective, bound</summary>{_table(head, rows)}</details>"


def _openb(runs: Sequence[PolicyResult], bounds: Sequence[BoundResult]) -> str:
    groups: dict[tuple[str, str], list[PolicyResult]] = defaultdict(list)
    for run in runs:
        groups[run.case, run.policy].append(run)
    rows = []
    for (case, policy), mine in groups.items():
        values = [run.used for run in mine]
        known = next((b for b in bounds if b.case == case), None)
        published = mine[0].published
        rows.append(
            (
                f"{case}: {policy}",
                str(len(mine)),
                f"{fmean(values):.2f}",
                f"{min(values):.2f} … {max(values):.2f}",
                "" if published is None else f"{published:.2f}",
                "" if published is None else f"{fmean(values) - published:+.2f}",
                "" if known is None else f"{known.bound:.2f}",
                f"{fmean(run.moved_pods for run in mine):.0f}",
                f"{max(run.most_moved_share for run in mine):.2f} %",
                f"{fmean(run.seconds for run in mine):.1f}",
            )
        )
    head = (
        "list: policy",
        "seeds",
        "GPUs in use %",
        "range",
        "published",
        "difference",
        "offline bound",
        "pods moved",
        "most moved per 100 arrivals",
        "s a run",
    )
    return (
        "<h2>openb: a production trace</h2>"
        '<p class="note">1,213 nodes with 6,212 GPUs. Pods arrive in random order until 130 % of the '
        "GPUs were "
        "asked for; each is placed at once or refused. Shown is the share of the GPUs in use at the end. "
        "Red diamonds: published means of the same policy. Green lines: no placement of these pods at all, "
        "even with all arrivals known, uses more (column generation). <i>moves</i>: at most 1 % of the "
        "running "
        "pods move per 100 arrivals. <i>may refuse</i>: also refuses pods that fit, which the others "
        "never do. <i>any repacking, refuses nothing</i> is not a policy but a relaxation: what taking "
        "everything leads to even if all pods could be repacked for every arrival.</p>"
        + (
            _figure(plots.policies(runs, bounds), "GPUs in use at the end, mean over the seeds.")
            if runs
            else ""
        )
        + _table(head, rows)
    )


def _starts(runs: Sequence[SimulationResult]) -> str:
    rows = [(f"{run.case}, seed {run.seed}: {run.policy}", *starts_row(run)) for run in runs]
    return (
        "<h2>Reservations over time</h2>"
        '<p class="note">Gangs of 2, 4 or 8 whole nodes (5.5 % of the jobs) among jobs of up to eight '
        "GPUs, one queue, run times declared as usual values, 7 % too short, 15 % not at all. <b>Waits</b> "
        "are hours until the start, or until the end of the run. <b>Idle held</b>: GPU-hours that stood idle "
        "for a reservation. <b>Promises</b>: the first start that was told, kept to one look at the cluster; "
        "those due after the end do not count.</p>"
        + _table(("workload: policy", *(name.lower() for name in STARTS)), rows)
    )


def _gangs(runs: Sequence[SimulationResult]) -> str:
    rows = [
        (
            f"{r.case}, seed {r.seed}: {r.policy}",
            f"{r.finished} of {r.groups}",
            *(
                f"{r.waiting_minutes[s]:.1f} ({r.waiting_p95_minutes[s]:.0f})"
                if s in r.waiting_minutes
                else ""
                for s in ("1", "2-4", "8", "16", "32+")
            ),
            f"{r.utilisation:.1%}",
            str(r.evictions),
            str(r.moves),
            f"{r.lost_gpu_hours:.1f}",
            f"{r.share_error:.1%}",
            f"{r.slowest_cycle_seconds:.2f}",
        )
        for r in runs
    ]
    head = (
        "workload: policy",
        "finished",
        "wait 1 GPU, min (p95)",
        "2-4",
        "8",
        "16",
        "32+",
        "utilisation",
        "evictions",
        "moves",
        "lost GPU-h",
        "share error",
        "slowest cycle s",
    )
    return (
        "<h2>Gangs over time</h2>"
        '<p class="note">A simulated day: pod groups arrive (93 % one GPU, 2 % eight, 0.3 % sixteen '
        "and more, 15 "
        "queues), wait, run and end on an in-memory cluster. <b>Lost</b>: work thrown away by evictions. "
        "<b>Share error</b>: how far the queues are from a fair division, mean over time.</p>"
        + _figure(plots.waits(runs), "Mean waiting time by size.")
        + _table(head, rows)
    )


def _matters(runs: Sequence[MattersResult]) -> str:
    rows = [
        (
            f"{r.case}, seed {r.seed}",
            f"{r.budget_seconds:g}",
            str(r.clusters),
            f"{r.improved / max(1, r.clusters):.0%}",
            f"{r.certified / max(1, r.clusters):.0%}",
            f"{r.equal_certified / max(1, r.clusters):.0%}",
            f"{r.mean_seconds:.2f}",
        )
        for r in runs
    ]
    head = (
        "clusters",
        "budget s",
        "number",
        "improved",
        "certified optimal",
        "default was optimal",
        "mean s",
    )
    return (
        "<h2>Where a default scheduler fails</h2>"
        '<p class="note">Small clusters on which spreading pods one at a time leaves some waiting. '
        "<b>Improved</b>: more pods of a priority run and none of a higher one fewer. "
        "<b>Certified</b>: the answer "
        "is proved best. The setting of “Priority Matters” (arXiv 2511.08373), generated again.</p>"
        + _table(head, rows)
    )


def _figure(image: str, caption: str) -> str:
    return f"<figure>{image}<figcaption>{escape(caption)}</figcaption></figure>" if image else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Without columns that are empty; words stand left, numbers right."""
    body = [[str(value) for value in row] for row in rows]
    shown = [at for at in range(len(head)) if any(at < len(row) and row[at] for row in body)]
    words = [any(at < len(row) and row[at][:1].isalpha() for row in body) for at in range(len(head))]
    style = [' class="words"' if word else "" for word in words]
    top = "".join(f"<th{style[at]}>{head[at]}</th>" for at in shown)
    lines = "".join(
        "<tr>" + "".join(f"<td{style[at]}>{escape(row[at])}</td>" for at in shown if at < len(row)) + "</tr>"
        for row in body
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())
