"""References in NumPy's float64, one short file for each operator, in the order of its specification."""
