"""Text in, types out: every format that rbdagent reads, without I/O."""
