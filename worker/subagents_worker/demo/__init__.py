"""The demo: a real job on real input, one agent per Python source file. `measure` and `table` are its pure parts."""
