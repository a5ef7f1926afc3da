"""One connection to the API server for all requests of a snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rbdagent.collect.kube.kubeconfig import credentials

if TYPE_CHECKING:
    from rbdagent.collect.kube.client import Api
    from rbdagent.collect.kube.kubeconfig import KubeAccess


class Connection:
    """The connection to the API server, opened for the first request; for one thread at a time.

    The credentials are read once: a kubeconfig may name a program for that, which takes a second
    with some providers.
    """

    def __init__(self, access: KubeAccess) -> None:
        self._access = access
        self._api: Api | None = None

    def api(self) -> Api:
        """Return the client of the API server.

        Raises:
            SourceError: there are no credentials, or they cannot be read.
        """
        if self._api is None:
            # Without a request, libcurl is not loaded.
            from rbdagent.collect.kube.client import Api

            self._api = Api(credentials(self._access), timeout_s=self._access.timeout_s)
        return self._api
