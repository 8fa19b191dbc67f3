"""Upper bounds on what any placement could reach, independent of how the engine decides."""

from kai_cp_models.bounds.fluid import Fluid, Prices, fluid_prices, room_values
from kai_cp_models.bounds.packing import PackingBound, packing_bound
from kai_cp_models.bounds.problem import Bin, BinItem

__all__ = [
    "Bin",
    "BinItem",
    "Fluid",
    "PackingBound",
    "Prices",
    "fluid_prices",
    "packing_bound",
    "room_values",
]
