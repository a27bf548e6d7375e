"""Which store a command means, and `loom doctor`."""
