"""Pure rules: no clock, no I/O, no logging, no settings. The daemon and the simulator call the same functions."""
