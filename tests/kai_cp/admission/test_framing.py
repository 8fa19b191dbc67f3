"""AdmissionReview and JSON patches: the envelope, and what an API server makes of a patch."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kai_cp.admission.framing import PATHS, ClusterFacts, answer
from kai_cp.admission.patch import difference
from kai_cp.reader.fields import Malformed
from tests.kai_cp.admission.build import SHARING, created, pod, pod_group, queue

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "~", "/", "~1"]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(("a", "b/c", "~", "")), inner)
    ),
    max_leaves=12,
)


def patched(document: Any, operations: list[dict[str, Any]]) -> Any:
    """RFC 6902, as far as ``add``, ``remove`` and ``replace``."""
    holder: dict[str, Any] = {"": copy.deepcopy(document)}
    for operation in operations:
        keys = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")]
        *way, last = keys
        target: Any = holder
        for key in way:
            target = target[int(key)] if isinstance(target, list) else target[key]
        value = copy.deepcopy(operation.get("value"))
        if isinstance(target, list):
            if operation["op"] == "add":
                target.insert(len(target) if last == "-" else int(last), value)
            elif operation["op"] == "remove":
                del target[int(last)]
            else:
                target[int(last)] = value
            continue
        assert (last in target) is (operation["op"] != "add")
        if operation["op"] == "remove":
            del target[last]
        else:
            target[last] = value
    return holder[""]


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1 is not true."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


@given(JSON, JSON)
@example({"a": [1]}, {"a": [True]})
@example([1, 2], [1])
@example([], [1])
def test_a_patch_makes_the_new_document_of_the_old_one(old: Any, new: Any) -> None:
    operations = list(difference(old, new))
    assert same(patched(old, operations), new)
    assert bool(operations) is not same(old, new)


def review(path: str, request: dict[str, Any], settings: Any = SHARING) -> dict[str, Any]:
    document = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "u", **request},
    }
    found = answer(path, json.loads(json.dumps(document)), settings, ClusterFacts())[0]
    assert found["apiVersion"] == "admission.k8s.io/v1"
    assert found["kind"] == "AdmissionReview"
    assert found["response"]["uid"] == "u"
    return dict(found["response"])


def test_a_pod_is_changed_by_one_webhook_and_judged_by_the_other() -> None:
    thing = pod({"gpu-fraction": "0.5", "runai/shared-gpu-configmap": "c"})
    request = {"operation": "CREATE", "namespace": "team", "object": thing}
    mutated = review("/mutate--v1-pod", request)
    patch = json.loads(base64.b64decode(mutated["patch"]))
    wanted = created(thing).object
    assert mutated == {"uid": "u", "allowed": True, "patchType": "JSONPatch", "patch": mutated["patch"]}
    assert patched(thing, patch) == wanted
    assert review("/validate--v1-pod", {**request, "object": wanted}) == {"uid": "u", "allowed": True}
    assert "patch" not in review("/mutate--v1-pod", {**request, "object": wanted})


def test_the_mutating_webhook_leaves_judgement_to_the_other() -> None:
    request = {"operation": "CREATE", "namespace": "team", "object": pod({"gpu-fraction": "7"})}
    assert review("/mutate--v1-pod", request)["allowed"]
    refused = review("/validate--v1-pod", request)
    assert refused["status"]["code"] == 403
    assert refused["status"]["reason"] == "Forbidden"
    assert "smaller than 1.0" in refused["status"]["message"]


def test_deletion_is_judged_by_the_old_object() -> None:
    request = {"operation": "DELETE", "object": None, "oldObject": queue("p", children=("c",))}
    assert not review("/validate-scheduling-run-ai-v2-queue", request)["allowed"]


def test_warnings_are_sent() -> None:
    request = {"operation": "CREATE", "object": pod_group(minSubGroup=2)}
    assert len(review("/validate-scheduling-run-ai-v2alpha2-podgroup", request)["warnings"]) == 1


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "body"),
        ({"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}, "admission.k8s.io/v1"),
        ({"request": {}}, "request.uid"),
        ({"request": {"uid": "u", "operation": "CONNECT", "object": {}}}, "request.operation"),
        ({"request": {"uid": "u", "operation": "CREATE"}}, "request.object"),
        ({"request": {"uid": "u", "operation": "CREATE", "object": {"kind": "Node"}}}, "request.object.kind"),
        ({"request": []}, "request"),
    ],
)
@pytest.mark.parametrize("path", PATHS)
def test_a_body_that_is_no_review_is_refused_by_name(path: str, document: Any, words: str) -> None:
    if isinstance(document, dict):
        document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", **document}
    with pytest.raises(Malformed, match=words):
        answer(path, document, SHARING, ClusterFacts())
