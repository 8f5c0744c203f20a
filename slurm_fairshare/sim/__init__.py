"""The simulator: traces and scenarios run through the very rules of core."""
