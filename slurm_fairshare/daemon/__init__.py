"""The tick and the rebalance pass, their ports and the loop that repeats them."""
