"""The agent: it runs the pipeline of the command line in a loop and keeps a persistent state."""
