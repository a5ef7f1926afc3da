"""The prepared process: it has imported what the reading verbs need, and answers at once.

Most of the time of an answer is the import of modules. On a node with a running agent, a reading
verb sends its command line, environment, directory and standard streams to a process that has them
imported. That process forks, and the child runs the verb as a new process would.

The agent starts the process when a verb finds none (`agent/prepared.py`), and that verb runs as it
would without an agent. The process ends some minutes after the last answer.
"""
