"""The Helm chart, rendered by real Helm: values take effect, and nonsense is refused."""

from __future__ import annotations

import copy
import importlib.util
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import yaml

from kai_cp.kube.admission.options import AdmissionOptions, RegistrationOptions
from kai_cp.kube.admission.registration import configurations
from kai_cp.kube.api.access import ACCESS, ControllerName
from kai_cp.kube.binder.options import BinderOptions
from kai_cp.kube.controllers.options import ControllerOptions
from kai_cp.kube.controllers.shard_objects import plan
from kai_cp.kube.scheduler.options import SchedulerOptions
from tests.deploy.helm import CHART, Object, helm, instead_of_kai, objects, refused, template

DEPLOY = CHART.parents[1]


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DEPLOY / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


make_chart = _load("make_chart")
DEFAULTS: Object = make_chart.defaults()
FULL: Object = {
    "mode": "enforce",
    "scheduler": {"settings": {"solver": {"seed": 1}}},
    "reservation": {"createNamespace": True, "createServiceAccount": True},
    "controllers": {
        "enabled": ["podgrouper", "node-scale-adjuster"],
        "scaling": {"create": True},
        "defaultPriorities": {"configMap": "by-kind"},
    },
    "admission": {"enabled": True},
    "defaults": {"queues": True, "priorityClasses": True},
    "crds": {"install": True},
    "networkPolicy": {"enabled": True},
    "monitoring": {
        "serviceMonitor": {"enabled": True},
        "prometheusRule": {"enabled": True},
        "dashboards": {"enabled": True},
    },
}
"""Everything switched on, so that every other value has an effect."""
OTHER: dict[str, Any] = {
    "mode": "advise",
    "image.digest": "sha256:" + "a" * 64,
    "image.pullPolicy": "Always",
    "imagePullSecrets": [{"name": "pull"}],
    "scheduler.schedulePeriod": "7s",
    "scheduler.settings": {"solver": {"seed": 2}},
    "binder.enabled": False,
    "controllers.enabled": ["podgrouper", "queue-controller"],
    "admission.failurePolicy": "Ignore",
    "monitoring.serviceMonitor.interval": "17s",
    "policies.otherSchedulers": ["system:serviceaccount:tenant-b:kai-cp-scheduler"],
    "shards": [{"name": "a", "nodePool": "a"}, {"name": "b", "nodePool": "b"}],
    "networkPolicy.metricsFrom": [{"namespaceSelector": {}}],
    "networkPolicy.apiServer": [{"ipBlock": {"cidr": "10.9.0.1/32"}}],
    "networkPolicy.apiServerPorts": [8443],
    "networkPolicy.webhooksFrom": [{"ipBlock": {"cidr": "10.9.0.1/32"}}],
    "networkPolicy.extraEgress": [{"ports": [{"port": 9090}]}],
}
"""Another value for those that cannot be derived from the type of the default."""


def leaves(tree: Object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path; free maps and lists are values."""
    for key, value in tree.items():
        where = f"{path}{key}"
        if isinstance(value, dict) and value and key not in ("labels",):
            yield from leaves(value, f"{where}.")
        else:
            yield where, value


def nested(path: str, value: Any, base: Object | None = None) -> Object:
    """``base`` with one value set."""
    made = copy.deepcopy(base or {})
    *folders, name = path.split(".")
    at = made
    for folder in folders:
        at = at.setdefault(folder, {})
    at[name] = value
    return made


def another(path: str, value: Any) -> Any:
    """A value that differs from ``value`` and that the schema accepts."""
    if path in OTHER:
        return OTHER[path]
    if isinstance(value, bool):
        return not dict(leaves(FULL)).get(path, value)
    if isinstance(value, int):
        return value + 2
    if path.endswith((".cpu", ".memory")):
        return "77m" if path.endswith("cpu") else "77Mi"
    if isinstance(value, str):
        return "different"
    if path.endswith("tolerations"):
        return [{"key": "gpu", "operator": "Exists"}]
    if path.endswith("affinity"):
        return {"nodeAffinity": {}}
    if path.endswith("topologySpreadConstraints"):
        return [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]
    if path.endswith("extraEnv"):
        return [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    if path.endswith("extraArgs"):
        return ["--qps=7"]
    if isinstance(value, dict):
        return {"key": "different"}
    raise AssertionError(f"say in OTHER what {path} may be")


def test_generated_files_are_what_their_sources_say() -> None:
    for path, text in make_chart.outputs().items():
        assert path.read_text("utf-8") == text, f"{path.name}: run `make docs`"


def test_lint_finds_nothing() -> None:
    for values in ({}, FULL):
        done = helm("lint", "--strict", str(CHART), "-f", "-", stdin=yaml.safe_dump(values))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stdout + done.stderr


@cache
def full() -> str:
    """The manifest with everything switched on."""
    return template(FULL)


@pytest.mark.parametrize("path", [path for path, _ in leaves(DEFAULTS)])
def test_every_value_is_used(path: str) -> None:
    value = another(path, dict(leaves(DEFAULTS))[path])
    assert template(nested(path, value, FULL)) != full(), path


def test_every_value_misspelt_is_refused_by_name() -> None:
    """All at once: Helm names every one, with its place."""
    paths = [path for path, _ in leaves(DEFAULTS)]
    values: Object = {}
    for path in paths:
        values = nested(f"{path}X", 1, values)
    said = refused(values)
    told = dict(re.findall(r"at '/?([^']*)': additional properties (.*) not allowed", said))
    assert len(paths) > 100
    for path in paths:
        folder, _, name = path.rpartition(".")
        assert f"'{name}X'" in told[folder.replace(".", "/")], path
    assert "misspelt" in refused({"shards": [{"name": "a", "misspelt": 1}]})


def test_every_value_of_a_wrong_type_is_refused_by_name() -> None:
    """All at once, as above: text instead of another type, a number instead of text."""
    values: Object = {}
    paths = dict(leaves(DEFAULTS))
    for path, value in paths.items():
        number = isinstance(value, str) and not path.endswith(".cpu")  # Cores are numbers, too.
        values = nested(path, 7 if number else "seven", values)
    told = set(re.findall(r"at '/?([^']*)': ", refused(values)))
    assert {path.replace(".", "/") for path in paths} - told == set()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("mode", "enforced"),
        ("scheduler.replicas", "two"),
        ("scheduler.replicas", -1),
        ("binder.enabled", "yes"),
        ("image.digest", "latest"),
        ("scheduler.resources.limits.memory", "2 GB"),
        ("shards", []),
        ("shards", [{"nodePool": "a"}]),
        ("shards", [{"name": "A_b"}]),
        ("scheduler.schedulePeriod", "soon"),
        ("logLevel", 11),
        ("imagePullSecrets", ["name"]),
        ("monitoring.serviceMonitor.interval", "often"),
        ("schedulerName", 'a"b'),
        ("commonLabels", {"app.kubernetes.io/version": "1"}),
        ("binder.podLabels", {"kai-cp/process": "mine"}),
        ("nodePoolLabelKey", "a b"),
        ("queueLabelKey", ""),
        ("image.repository", "Kai CP"),
        ("reservation.namespace", "A_B"),
        ("monitoring.dashboards.namespace", "A_B"),
        ("networkPolicy.apiServerPorts", [65_536]),
        ("networkPolicy.apiServerPorts", []),
        ("scheduler.settings.objective.goals", ["thresold"]),
        ("scheduler.settings.objective.goals", ["threshold + moved_pods"]),
        ("scheduler.settings.defrag.goal", "rack"),
        ("scheduler.settings.defrag.windows", ["Fry 02:00-05:00"]),
        ("scheduler.podLabels", {"a b": "c"}),
        ("monitoring.serviceMonitor.labels", {"a": "b c"}),
        ("commonLabels", {"a": "b" * 64}),
        ("fullnameOverride", "Foo_Bar"),
        ("image.tag", "a b"),
        ("image.registry", "https://registry.example"),
        ("scheduler.schedulePeriod", "..s"),
        ("controllers.scaling.namespace", "A b"),
        ("controllers.enabled", ["podgrouper", "podgrouper"]),
        ("shards", [{"name": "a", "nodePool": "a b"}]),
        # Helm takes out what is null: what the templates need is missed by its name.
        ("scheduler", None),
        ("scheduler.replicas", None),
        ("scheduler.schedulePeriod", None),
        ("schedulerName", None),
        ("monitoring.dashboards", None),
    ],
)
def test_a_wrong_value_is_refused_and_named(path: str, value: Any) -> None:
    assert path.rpartition(".")[2] in refused(nested(path, value))


def test_null_takes_away_what_need_not_be_there() -> None:
    """All at once: what is empty by default, and what may be empty."""
    switched_on = dict(leaves(FULL))
    values = FULL
    paths = [path for path, value in leaves(DEFAULTS) if not value and path not in switched_on]
    for path in (*paths, "scheduler.resources", "binder.priorityClassName", "nodePoolLabelKey"):
        values = nested(path, None, values)
    assert len(paths) > 40
    made = template(values)
    assert "<nil>" not in made
    assert "null" not in re.findall(r"[^ ]+$", made.split("kind: CustomResourceDefinition")[0], re.MULTILINE)


def test_a_release_with_dots_has_names_that_services_may_have() -> None:
    for release in ("a.b.c", "a" * 39 + "." + "b" * 13, "x" * 53):
        made = objects(template(FULL, release))
        names = [item["metadata"]["name"] for item in made if item["kind"] == "Service"]
        assert names
        assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name) for name in names), names


def test_settings_as_a_settings_file_has_them_are_accepted() -> None:
    settings = {
        "objective": {"goals": ["threshold", "lost_work + moved_pods"]},
        "defrag": {"goal": "gang=8x8@rack=2", "windows": ["Mon-Fri 22:00-05:00", "Sun 00:00-24:00"]},
    }
    assert template({"scheduler": {"settings": settings}})


def test_cores_may_be_written_without_quotes() -> None:
    made = objects(template({"scheduler": {"resources": {"limits": {"cpu": 2}, "requests": {"cpu": 0.5}}}}))
    (scheduler,) = (item for item in made if item["kind"] == "Deployment")
    asked = scheduler["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert (asked["limits"]["cpu"], asked["requests"]["cpu"]) == (2, 0.5)


def test_ports_of_the_api_server_are_never_all_ports() -> None:
    values = nested("networkPolicy.apiServerPorts", None, FULL)
    assert "networkPolicy.apiServerPorts" in refused(values)


@pytest.mark.parametrize("reserves", [True, False])
def test_one_namespace_for_reservations_and_scaling_pods_is_made_once(reserves: bool) -> None:
    values = nested("reservation.createNamespace", reserves, nested("reservation.namespace", "gpus", FULL))
    made = objects(template(nested("controllers.scaling.namespace", "gpus", values)))
    names = Counter(
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in made
    )
    assert names["Namespace", None, "gpus"] == 1
    assert max(names.values()) == 1


def test_a_label_that_is_set_twice_is_written_once() -> None:
    """The more special one wins; Helm and the server refuse a key that is there twice."""
    everywhere, here = {"team": "a", "release": "a"}, {"team": "b", "release": "b"}
    values = {
        "commonLabels": everywhere,
        "scheduler": {"podLabels": here},
        "monitoring": {
            part: {"enabled": True, "labels": here}
            for part in ("serviceMonitor", "prometheusRule", "dashboards")
        },
    }
    manifest = template(values)
    assert "team: a" in manifest
    for item in objects(manifest):
        special = item["kind"] in {"ServiceMonitor", "PrometheusRule", "ConfigMap"}
        labels = item["metadata"]["labels"]
        assert {key: labels[key] for key in here} == (here if special else everywhere), item["kind"]
        if item["kind"] == "Deployment":
            pods = item["spec"]["template"]["metadata"]["labels"]
            assert {key: pods[key] for key in here} == here
    for text in manifest.split("\n---"):
        lines = re.findall(r"(?m)^ {4}(team|release): ", text)
        assert len(lines) == len(set(lines)), text[:200]


PROCESSES = ("scheduler", "binder", "controllers", "admission")


@pytest.mark.parametrize(
    ("values", "namespace", "classes"),
    [
        ({}, "kai-cp", ["system-cluster-critical"]),
        ({"binder": {"priorityClassName": "system-node-critical"}}, "kai-cp",
         ["system-cluster-critical", "system-node-critical"]),
        ({part: {"priorityClassName": "mine"} for part in PROCESSES}, "kai-cp", None),
        ({}, "kube-system", None),
        ({"priorityQuota": {"enabled": False}}, "kai-cp", None),
    ],
)  # fmt: skip
def test_a_quota_lets_pods_of_a_system_class_in(
    values: Object, namespace: str, classes: list[str] | None
) -> None:
    made = objects(template(values, namespace=namespace))
    quotas = [item["spec"] for item in made if item["kind"] == "ResourceQuota"]
    found = [quota["scopeSelector"]["matchExpressions"][0]["values"] for quota in quotas]
    assert [sorted(names) for names in found] == ([classes] if classes else [])


def test_a_shard_name_is_used_once() -> None:
    assert "used twice" in refused({"shards": [{"name": "a"}, {"name": "a", "nodePool": "b"}]})


def test_a_name_that_is_too_long_for_a_label_is_refused() -> None:
    long = {"fullnameOverride": "k" * 40, "shards": [{"name": "s" * 13}]}
    assert "63 characters" in refused(long)
    assert objects(template({**long, "shards": [{"name": "s" * 12}]}))


def test_shards_that_are_taken_away_leave_the_rest() -> None:
    assert not [
        item for item in objects(template({"shards": None})) if "-scheduler-" in str(item["metadata"])
    ]


def granted(manifest: str, *, people: bool = False) -> set[tuple[str, str]]:
    """Verbs and resources of all roles; ``people``: also of the role that is bound to no account."""
    return {
        (verb, resource)
        for item in objects(manifest)
        if item["kind"] in ("Role", "ClusterRole")
        and (people or not item["metadata"]["name"].endswith("-reader"))
        for rule in item.get("rules", ())
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }


def test_defaults_may_read_and_nothing_else() -> None:
    manifest = template()
    asks = {("create", "subjectaccessreviews")}  # A question, which nothing is stored of.
    assert {verb for verb, _ in granted(manifest, people=True) - asks} <= {"get", "list", "watch"}
    assert "secrets" not in {resource for _, resource in granted(manifest, people=True)}
    kinds = {item["kind"] for item in objects(manifest)}
    assert not kinds & {"Namespace", "CustomResourceDefinition", "Secret"}
    assert not kinds & {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


def test_advising_writes_statuses_events_and_its_lease() -> None:
    writes = {(v, r) for v, r in granted(template({"mode": "advise"})) if v not in ("get", "list", "watch")}
    assert {resource for _, resource in writes} == {"events", "leases", "podgroups/status", "pods/status"}


def test_enforcing_may_do_what_is_declared() -> None:
    declared = {
        (grant.verb, grant.resource)
        for process in ("scheduler", "binder", "gpu-reservation")
        for grant in ACCESS[process]  # type: ignore[index]
    }
    values = {"mode": "enforce", "reservation": {"createServiceAccount": True}}
    assert granted(template(values)) == declared


def test_roles_are_bound_to_their_own_accounts() -> None:
    found = instead_of_kai()
    accounts = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in found
        if item["kind"] == "ServiceAccount"
    }
    bindings = [item for item in found if item["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    assert len(bindings) > 8
    for item in bindings:
        (subject,) = item["subjects"]
        assert (subject["namespace"], subject["name"]) in accounts, item["metadata"]
        role = item["roleRef"]["name"]
        component = subject["name"].removeprefix("kai-cp-")
        hosts = component == "controllers" and any(part in role for part in get_args(ControllerName))
        assert hosts or component in role or "gpu-reservation" in role, (role, subject)


def test_pods_are_confined_and_serve_metrics_alone() -> None:
    deployments = [item for item in instead_of_kai() if item["kind"] == "Deployment"]
    assert len(deployments) == 4
    for item in deployments:
        component = item["metadata"]["labels"]["app.kubernetes.io/component"]
        spec = item["spec"]["template"]["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["serviceAccountName"] == f"kai-cp-{component}"
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"] is True
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert not any("plugin-server" in argument for argument in container["args"])
            served = {port["containerPort"] for port in container["ports"]}
            assert served == {8080} | ({9443} if component == "admission" else set())


def test_schedulers_of_shards_are_read_and_confined_as_those_of_the_chart() -> None:
    values = {"controllers": {"enabled": ["shards"]}, "networkPolicy": {"enabled": True}}
    made = objects(template(values, release="two"))
    named = ("Deployment", "two-kai-cp-controllers")
    (controllers,) = [item for item in made if (item["kind"], item["metadata"]["name"]) == named]
    arguments = controllers["spec"]["template"]["spec"]["containers"][0]["args"]
    given = dict(one.split("=", 1) for one in arguments if one.startswith("--shard-instance="))
    shard = {"metadata": {"name": "a", "uid": "u"}}
    pod = plan(shard, {}, ControllerOptions(shard_instance=given["--shard-instance"])).deployment
    labels = pod["spec"]["template"]["metadata"]["labels"]
    selectors = {
        item["kind"]: item["spec"].get("podSelector", {}).get("matchLabels") or item["spec"].get("selector")
        for item in made
        if item["kind"] in {"Service", "NetworkPolicy"}
    }
    assert selectors.keys() == {"Service", "NetworkPolicy"}
    assert all(selector.items() <= labels.items() for selector in selectors.values())


def test_a_shard_has_a_scheduler_as_the_chart_makes_one() -> None:
    """On OpenShift, whose default constraints refuse a pod that names its user."""
    values = {
        "openshift": True,
        "controllers": {"enabled": ["shards"]},
        "reservation": {"appLabel": "held", "namespace": "held-here"},
    }
    specs = {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["spec"]
        for item in objects(template(values))
        if item["kind"] == "Deployment"
    }
    told = (one.removeprefix("--").split("=", 1) for one in specs["controllers"]["containers"][0]["args"])
    given = {pair[0].replace("-", "_"): pair[1] for pair in told if len(pair) == 2}
    options = ControllerOptions(**{key: given[key] for key in given.keys() & ControllerOptions.__slots__})
    made = plan({"metadata": {"name": "a", "uid": "u"}}, {}, options).deployment["spec"]["template"]["spec"]
    assert made["securityContext"] == specs["scheduler"]["securityContext"]
    assert "podAntiAffinity" in made["affinity"]
    ours, usual = made["containers"][0], specs["scheduler"]["containers"][0]
    for key in ("livenessProbe", "readinessProbe", "securityContext", "resources", "volumeMounts", "ports"):
        assert ours[key] == usual[key], key
    # Those that are left have these values without being named.
    assert set(usual["args"]) - set(ours["args"]) == {
        "--listen-address=:8080",
        "--schedule-period=1s",
        "-v",
        "3",
    }


PROGRAMS: dict[str, Any] = {
    "scheduler": SchedulerOptions,
    "binder": BinderOptions,
    "controllers": ControllerOptions,
    "admission": AdmissionOptions,
}
"""What each process can be told."""


def test_processes_are_told_the_same() -> None:
    """A scheduler that looks for reservation pods elsewhere takes each shared GPU for two that are in use."""
    elsewhere: Object = {
        "schedulerName": "mine",
        "nodePoolLabelKey": "pool",
        "queueLabelKey": "queue",
        "reservation": {"namespace": "held-here", "appLabel": "held"},
        "binder": {"hamiCoreEnabled": True},
        "controllers": {"enabled": ["podgrouper", "shards"], "scaling": {"namespace": "scaled-here"}},
    }
    told: dict[str, set[str]] = {}
    for item in objects(template({**FULL, **elsewhere})):
        if item["kind"] == "Deployment":
            container = item["spec"]["template"]["spec"]["containers"][0]
            told[container["name"]] = {one for one in container["args"] if one.startswith("--")}
    assert told.keys() == PROGRAMS.keys()
    for asked, flags in told.items():
        for other, options in PROGRAMS.items():
            known = {field.name.replace("_", "-") for field in fields(options)}
            common = {one for one in flags if one.removeprefix("--").partition("=")[0] in known}
            assert common <= told[other], (asked, other)


def test_policies_bound_the_accounts_of_this_release() -> None:
    values = {"mode": "enforce", "schedulerName": "mine", "reservation": {"namespace": "held"}}
    manifest = template(values, "two", "elsewhere")
    policies = [item for item in objects(manifest) if item["kind"] == "ValidatingAdmissionPolicy"]
    bindings = [item for item in objects(manifest) if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    names = {item["metadata"]["name"] for item in policies}
    assert {item["spec"]["policyName"] for item in bindings} == names
    assert len(names) == len(policies) >= 6
    text = yaml.safe_dump_all(policies)
    assert "system:serviceaccount:elsewhere:two-kai-cp-scheduler" in text
    assert "system:serviceaccount:held:kai-resource-reservation" in text
    assert "system:serviceaccount:kai-scheduler" not in text
    assert 'schedulerName == "mine"' in text


@pytest.mark.parametrize(
    ("values", "there"),
    [
        ({}, False),
        ({"mode": "advise"}, True),
        ({"mode": "enforce"}, True),
        ({"controllers": {"enabled": ["podgrouper"]}}, True),
        ({"mode": "enforce", "policies": {"enabled": False}}, False),
    ],
    ids=["observe", "advise", "enforce", "observe with controllers", "switched off"],
)
def test_policies_are_there_as_soon_as_anything_of_ours_writes(values: Object, there: bool) -> None:
    """In any mode, a token that writes to pod groups is limited and ``kai-cp/reservation`` is protected."""
    names = {
        item["metadata"]["name"]
        for item in objects(template(values))
        if item["kind"] == "ValidatingAdmissionPolicy"
    }
    assert bool(names) == there
    assert not there or any(name.endswith("promises") for name in names)


def test_the_scheduler_of_another_release_keeps_its_promises_too() -> None:
    other = "system:serviceaccount:tenant-b:kai-cp-scheduler"
    values = {"mode": "enforce", "policies": {"otherSchedulers": [other]}}
    (promises,) = (
        item
        for item in objects(template(values, "kai-cp", "tenant-a"))
        if item["kind"] == "ValidatingAdmissionPolicy" and item["metadata"]["name"].endswith("promises")
    )
    (condition,) = promises["spec"]["matchConditions"]
    ours = "system:serviceaccount:tenant-a:kai-cp-scheduler"
    assert condition["expression"] == f'!(request.userInfo.username in ["{ours}","{other}"])'
    assert "otherSchedulers" in refused({"policies": {"otherSchedulers": ["anybody"]}})


@pytest.mark.parametrize("shard", [{"nodePool": "a"}, {"schedulingShard": "s"}])
def test_node_pools_and_shards_bring_the_rights_that_they_need(shard: Object) -> None:
    plain, pools = ({"mode": "enforce", "shards": [{"name": "a", **more}]} for more in ({}, shard))
    more = granted(template(pools)) - granted(template(plain))
    assert more == {("patch", "pods"), ("get", "schedulingshards")} - granted(template(plain))
    assert ("get", "schedulingshards") in more


def test_a_controller_that_is_off_has_no_rights() -> None:
    before = granted(template())
    for name in get_args(ControllerName):
        values = {"enabled": [name], "defaultPriorities": {"configMap": "by-kind"}}
        found = granted(template({"controllers": values}))
        roles = (name, "controllers", *(["node-pools"] if name == "shards" else []))
        declared = {
            (g.verb, g.resource) for p in roles for g in ACCESS[p] if p != "node-pools" or g.verb == "get"
        }  # type: ignore[index]
        assert found == before | declared, name


def test_the_grouper_reads_one_config_map_by_name_and_only_if_it_is_told() -> None:
    def readers(values: Object) -> list[tuple[str | None, Object]]:
        made = objects(template(nested("controllers.enabled", ["podgrouper"], values)))
        roles = [item for item in made if item["metadata"]["name"] == "kai-cp-one-kai-cp-podgrouper"]
        found = [
            (item["metadata"].get("namespace"), rule) for item in roles for rule in item.get("rules", ())
        ]
        return [(where, rule) for where, rule in found if "configmaps" in rule["resources"]]

    assert readers({}) == []
    rule = {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["by-kind"], "verbs": ["get"]}
    named = nested("controllers.defaultPriorities.configMap", "by-kind")
    assert readers(named) == [("kai-cp", rule)]
    assert readers(nested("controllers.defaultPriorities.namespace", "far", named)) == [("far", rule)]


def test_admission_reads_one_secret_by_name() -> None:
    secrets = [
        rule
        for item in objects(template({"admission": {"enabled": True}}))
        if item["kind"] in ("Role", "ClusterRole")
        for rule in item.get("rules", ())
        if "secrets" in rule["resources"]
    ]
    assert [rule["resourceNames"] for rule in secrets] == [["kai-cp-admission-tls"]]


def test_webhooks_lead_to_the_release_and_judge_its_pods_alone() -> None:
    values = {"admission": {"enabled": True, "failurePolicy": "Ignore"}, "schedulerName": "mine"}
    hooks = [
        hook
        for item in objects(template(values, namespace="elsewhere"))
        if item["kind"].endswith("WebhookConfiguration")
        for hook in item["webhooks"]
    ]
    assert len(hooks) >= 4
    for hook in hooks:
        assert hook["clientConfig"]["service"]["namespace"] == "elsewhere"
        assert hook["failurePolicy"] == "Ignore"
        said = [condition["expression"] for condition in hook.get("matchConditions", ())]
        names = [expression for expression in said if "schedulerName" in expression]
        assert names in ([], ["object.spec.schedulerName == 'mine'"])
    pods = [hook for hook in hooks if hook["rules"][0]["resources"] == ["pods"]]
    assert pods
    assert all(hook["namespaceSelector"]["matchExpressions"][0]["values"][-1] == "elsewhere" for hook in pods)


def test_admission_that_blocks_devices_is_asked_for_every_pod_of_ours() -> None:
    flag = "--block-nvidia-visible-devices"
    made = objects(template({"admission": {"enabled": True, "extraArgs": [flag]}}, namespace="kai-scheduler"))
    hooks = {
        hook["clientConfig"]["service"]["path"]: hook.get("matchConditions")
        for item in made
        if item["kind"].endswith("WebhookConfiguration")
        for hook in item["webhooks"]
    }
    assert hooks == {
        hook["clientConfig"]["service"]["path"]: hook.get("matchConditions")
        for item in configurations(RegistrationOptions(block_nvidia_visible_devices=True))
        for hook in item["webhooks"]
    }


def test_nothing_is_looked_up_and_nothing_lives_in_a_hook_alone() -> None:
    for path in CHART.rglob("*"):
        if path.is_file() and path.parent.name == "templates":
            text = path.read_text("utf-8")
            assert not [word for word in ("lookup", "helm.sh/hook") if word in text], path
    assert template(FULL) == template(FULL)


def test_every_object_carries_the_release_and_its_labels() -> None:
    for item in objects(template({**FULL, "commonLabels": {"team": "ml"}})):
        if item["kind"] in ("CustomResourceDefinition", "Queue", "PriorityClass"):
            assert item["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
            continue
        labels = item["metadata"]["labels"]
        assert (labels["app.kubernetes.io/instance"], labels["team"]) == ("one", "ml"), item["metadata"]


def test_two_releases_share_no_object() -> None:
    def named(release: str, namespace: str) -> set[tuple[str, str, str]]:
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
            for item in objects(
                template({"mode": "enforce", "networkPolicy": {"enabled": True}}, release, namespace)
            )
        }

    assert not named("one", "a") & named("one", "b")
    assert not named("one", "a") & named("two", "a")


def test_reservation_pods_run_the_same_image() -> None:
    digest = "sha256:" + "c" * 64
    image = {"registry": "example.test/", "repository": "team/kai-cp", "digest": digest}
    args = {
        item["metadata"]["labels"]["app.kubernetes.io/component"]: item["spec"]["template"]["spec"]
        for item in objects(template({"mode": "enforce", "image": image}))
        if item["kind"] == "Deployment"
    }
    wanted = f"example.test/team/kai-cp@{digest}"
    assert args["binder"]["containers"][0]["image"] == wanted
    assert f"--resource-reservation-pod-image={wanted}" in args["binder"]["containers"][0]["args"]


def test_every_account_pulls_with_the_same_secrets() -> None:
    """The chart does not write the schedulers of SchedulingShards; its account of schedulers is theirs."""
    made = objects(template({**FULL, "imagePullSecrets": [{"name": "pull"}]}))
    accounts = [item for item in made if item["kind"] == "ServiceAccount"]
    assert len(accounts) >= 6
    assert all(item["imagePullSecrets"] == [{"name": "pull"}] for item in accounts)


SCC_VOLUMES = {
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
"""What OpenShift's ``restricted-v2`` allows a pod to mount."""


def test_openshift_takes_every_pod_under_its_default_constraints() -> None:
    """The rules of the SecurityContextConstraints ``restricted-v2``, which every account may use."""
    deployments = [
        item for item in objects(template({**FULL, "openshift": True})) if item["kind"] == "Deployment"
    ]
    assert len(deployments) == 4
    for item in deployments:
        spec = item["spec"]["template"]["spec"]
        security = spec["securityContext"]
        # User, group and labels come from the namespace, and a number that is set would lie outside its
        # range.
        assert (
            not {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups", "seLinuxOptions"}
            & security.keys()
        )
        assert security["runAsNonRoot"] is True
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        for volume in spec["volumes"]:
            assert volume.keys() - {"name"} <= SCC_VOLUMES
        for container in spec["containers"]:
            confined = container["securityContext"]
            assert confined["allowPrivilegeEscalation"] is False
            assert confined["capabilities"] == {"drop": ["ALL"]}
            assert not {"runAsUser", "privileged"} & confined.keys()
            assert not any("hostPort" in port for port in container["ports"])
            # The image works with any other user id: what is written goes to a volume.
            assert confined["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(("openshift", "ports"), [(False, {53}), (True, {53, 5353})])
def test_names_are_looked_up_where_the_cluster_answers(openshift: bool, ports: set[int]) -> None:
    """OpenShift's DNS pods listen on 5353 behind a Service on 53."""
    (policy,) = (
        item
        for item in objects(template({"openshift": openshift, "networkPolicy": {"enabled": True}}))
        if item["kind"] == "NetworkPolicy"
    )
    dns = [
        rule["ports"] for rule in policy["spec"]["egress"] if {"port": 53, "protocol": "UDP"} in rule["ports"]
    ]
    assert [{(one["port"], one["protocol"]) for one in found} for found in dns] == [
        {(port, protocol) for port in ports for protocol in ("UDP", "TCP")}
    ]


def test_the_page_names_every_value() -> None:
    page = Path(CHART / "README.md").read_text("utf-8")
    for path, _ in leaves(DEFAULTS):
        assert f"`{path}" in page, path
    shard = make_chart.ChartValues().shards[0]
    for name in type(shard).model_fields:
        assert f"`shards[].{name}`" in page, name
