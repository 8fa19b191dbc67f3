"""Records of which there are many: equal fields make equal records, which find each other in a dict."""

from __future__ import annotations

from dataclasses import replace

from kai_cp_models.frozen import record


@record(frozen=True, slots=True)
class Coloured:
    name: str
    colours: tuple[str, ...] = ()


def test_records_are_known_by_their_fields() -> None:
    red = Coloured("x", ("red",))
    assert {red: 1}[replace(Coloured("y", ("red",)), name="x")] == 1
    assert red != replace(red, colours=())
    assert not hasattr(red, "__dict__")
