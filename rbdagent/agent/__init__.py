"""The daemon: the pipeline of the command line in a loop, with a memory."""
