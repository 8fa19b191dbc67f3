"""Dynamic resource allocation (2.5): claims, device classes and the devices that slices publish."""
