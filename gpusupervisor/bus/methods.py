"""The methods of our interfaces: check the arguments' form, ask the authority, call the controller, show the result."""

from collections.abc import Callable
from functools import partial

from gpusupervisor.bus import names
from gpusupervisor.bus.admission import Admission
from gpusupervisor.bus.interfaces import ENGINE, TENANT
from gpusupervisor.bus.objects import Call, Handlers
from gpusupervisor.bus.plans import plan_details, result_details
from gpusupervisor.bus.published import variants
from gpusupervisor.bus.views import Realtime, check_details, engine_view, tenant_view
from gpusupervisor.bus.wire import document, text
from gpusupervisor.clock import UNKNOWN
from gpusupervisor.errors import InvalidArgument, NoSuchEngine, NoSuchTenant
from gpusupervisor.foreign_text import unknown_name
from gpusupervisor.state import Controller, State

IDENTIFIER_LIMIT = 256
DEFINITION_LIMIT = 64 * 1024
"""Characters of a tenant file that is checked; the command line checks longer ones itself."""


class Methods:
    """Handlers by interface."""

    def __init__(
        self, controller: Controller, admission: Admission, realtime: Realtime, state: Callable[[], State]
    ) -> None:
        self._controller = controller
        self._admission = admission
        self._realtime = realtime
        self._state = state

    def manager(self) -> Handlers:
        """Of the root object."""
        return {
            "PlanRelease": self._plan_release,
            "MakeRoom": self._make_room,
            "Reload": self._reload,
            "SetAutomatic": self._set_automatic,
            "CheckDefinition": self._check_definition,
        }

    def tenants(self) -> Handlers:
        """Of the collection of tenants."""
        return {
            "List": self._list_tenants,
            "Get": self._get_tenant,
            "Release": self._release,
            "Explain": self._explain,
        }

    def tenant(self, tenant: str) -> Handlers:
        """Of one tenant."""
        return {"Release": partial(self._release_this, tenant)}

    def health(self) -> Handlers:
        """Of the health object."""
        return {"Check": self._check}

    def engines(self) -> Handlers:
        """Of the collection of engines."""
        return {"List": self._list_engines, "Get": self._get_engine}

    async def _plan_release(self, _call: Call, gpu: str, tenant: str, size: int) -> list[object]:
        _check_request(gpu, tenant, size)
        return [plan_details(self._controller.plan_release(gpu, tenant, size), self._realtime)]

    async def _check(self, _call: Call) -> list[object]:
        """Changes nothing, so anybody may; all who ask at the same time share one run."""
        return [[check_details(check, self._realtime) for check in await self._controller.check()]]

    async def _make_room(self, call: Call, gpu: str, tenant: str, size: int) -> list[object]:
        _check_request(gpu, tenant, size)
        async with self._admission.authorized(call, names.ACTION_MAKE_ROOM, tenant=tenant):
            return [result_details(await self._controller.make_room(gpu, tenant, size))]

    async def _reload(self, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_RELOAD):
            await self._controller.reload()
        return []

    async def _set_automatic(self, call: Call, enabled: bool) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_SET_AUTOMATIC):
            await self._controller.set_automatic(enabled)
        return []

    async def _check_definition(self, _call: Call, name: str, content: str) -> list[object]:
        _check_identifier("name", name)
        if len(content) > DEFINITION_LIMIT:
            raise InvalidArgument(f"text: at most {DEFINITION_LIMIT} characters are allowed")
        return [[text(problem) for problem in await self._controller.check_definition(name, content)]]

    async def _list_tenants(self, _call: Call) -> list[object]:
        return [sorted(self._state().definitions)]

    async def _get_tenant(self, _call: Call, tenant: str) -> list[object]:
        if tenant not in self._state().definitions:
            raise NoSuchTenant(unknown_name("tenant", tenant, self._state().definitions))
        return [variants(TENANT, tenant_view(self._state(), tenant, self._realtime))]

    async def _release(self, call: Call, tenant: str) -> list[object]:
        _check_identifier("tenant", tenant)
        return await self._release_this(tenant, call)

    async def _release_this(self, tenant: str, call: Call) -> list[object]:
        async with self._admission.authorized(call, names.ACTION_RELEASE, tenant=tenant):
            return [result_details(await self._controller.release(tenant))]

    async def _explain(self, _call: Call, tenant: str) -> list[object]:
        _check_identifier("tenant", tenant)
        return [document(self._controller.explain(tenant))]

    async def _list_engines(self, _call: Call) -> list[object]:
        return [sorted(self._state().engines)]

    async def _get_engine(self, _call: Call, engine: str) -> list[object]:
        if engine not in self._state().engines:
            raise NoSuchEngine(unknown_name("engine", engine, self._state().engines))
        return [variants(ENGINE, engine_view(self._state(), engine))]


def _check_request(gpu: str, tenant: str, size: int) -> None:
    for name, value in (("gpu", gpu), ("tenant", tenant)):
        if value:
            _check_identifier(name, value)
    if size == UNKNOWN:
        raise InvalidArgument("size: all ones means unknown; give bytes, or 0 for the tenant's own need")


def _check_identifier(name: str, value: str) -> None:
    if not value or len(value) > IDENTIFIER_LIMIT or not value.isprintable():
        raise InvalidArgument(f"{name} must be 1 to {IDENTIFIER_LIMIT} printable characters")
