"""References in NumPy's float64: short files, each in the order of its operators' specification."""
