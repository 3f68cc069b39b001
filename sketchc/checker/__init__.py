"""The checker: from a syntax tree to a typed, proved sketch. `api` is its public interface."""
