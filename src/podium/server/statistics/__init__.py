"""Figures over many runs: what workers did lately, and what was spent. Pure sums over what the
store holds; the endpoints say who may see them."""
