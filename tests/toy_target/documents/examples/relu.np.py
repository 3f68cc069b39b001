"""relu in NumPy."""

import numpy as np


def relu(X, *, out=None):
    return np.maximum(X, 0, out=out)
