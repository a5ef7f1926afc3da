"""Requests to the Kubernetes API. Only the agent's own objects are written."""
