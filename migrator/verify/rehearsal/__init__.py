"""The switch and the way back, rehearsed on copies and in scratch databases: nothing real is touched."""
