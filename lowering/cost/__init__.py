"""The cost model: what a plan will cost at given sizes on a chip, before anything is compiled."""
