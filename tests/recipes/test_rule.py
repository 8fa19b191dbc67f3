"""What the recipe *Add a rule* of CONTRIBUTING relies on: hooks that find a rule without a further list."""

from pathlib import Path

from kai_cp_models import check
from kai_cp_models.check.audit import SUBJECTS
from kai_cp_models.explain.families import ORDER
from kai_cp_models.rules.stateful.protocol import LeavingState
from kai_cp_models.rules.static import STATIC_RULES


def test_every_family_of_a_rule_has_its_place_in_the_order() -> None:
    states = [kind for kind in LeavingState.__subclasses__() if kind.__module__.startswith("kai_cp_models")]
    named = {rule.FAMILY for rule in STATIC_RULES} | {kind.family for kind in states}
    assert len(states) >= 8
    assert named - {None} <= set(ORDER)


def test_a_subject_of_the_audit_is_a_module_with_its_function() -> None:
    folder = Path(check.__file__).parent
    written = {path.stem for path in folder.glob("*.py") if "def broken(" in path.read_text("utf-8")}
    assert SUBJECTS.keys() == written
    assert next(iter(SUBJECTS)) == "protocol"
