"""One multi-task loop, its samplers, and the methods that change what a step updates."""
