"""Upper bounds on what any placement could reach, independent of how the engine decides."""

from kai_cp_models.bounds.fluid import Prices, fluid_prices, room_values
from kai_cp_models.bounds.packing import Bin, Item, PackingBound, packing_bound

__all__ = ["Bin", "Item", "PackingBound", "Prices", "fluid_prices", "packing_bound", "room_values"]
