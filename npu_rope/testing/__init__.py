"""Cases, bounds and peers that judge results. All tolerances are in this package."""
