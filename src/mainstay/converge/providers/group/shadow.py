"""Local groups, changed with groupadd, groupmod and groupdel."""

from __future__ import annotations

from mainstay.converge.contract import Change, Provider
from mainstay.converge.failures import Failure
from mainstay.converge.host.account_tools import (
    missing_tools,
    one_run_at_a_time,
    refuse_plain_users,
    run_tool,
    source_of,
)
from mainstay.converge.host.host import Host
from mainstay.converge.resources.group import ABSENT, CREATE, PRESENT, REMOVE, Group, GroupState


class ShadowGroups(Provider):
    name = "shadow"

    def unavailable(self, host: Host) -> str | None:
        return missing_tools(host, "groupadd", "groupmod", "groupdel")

    # ---- reading ----
    def read(self, wanted: Group, host: Host, *, refresh: bool) -> GroupState:
        databases = host.account_databases()
        state = GroupState(wanted.name, self.name)
        entry = databases.group(wanted.name)
        if entry is None:
            if databases.is_known_elsewhere(wanted.name, "group"):
                source = source_of(wanted.name, "group", host)
                raise Failure(f"group {wanted.name} is not local ({source}); manage it there")
        else:
            state.ensure = PRESENT
            state.gid = entry.gid
            state.members = tuple(entry.members)
        if wanted.ensure == ABSENT and entry is not None:
            state.primary_of = tuple(user.name for user in databases.users() if user.gid == entry.gid)
        elif wanted.gid is not None and wanted.gid != state.gid:
            state.gid_taken_by = databases.gid_owner(wanted.gid)
        return state

    # ---- changing ----
    def perform(self, wanted: Group, actual: GroupState, change: Change, host: Host) -> None:
        with one_run_at_a_time(host):
            self._change(wanted, actual, change, host)

    def _change(self, wanted: Group, actual: GroupState, change: Change, host: Host) -> None:
        if change.verb == REMOVE:
            run_tool(host, ("groupdel", "--", wanted.name))
            return
        number = self._number(wanted, host)
        if change.verb == CREATE:
            system = ("--system",) if wanted.system else ()
            run_tool(host, ("groupadd", "--gid", str(number), *system, "--", wanted.name))
            return
        run_tool(host, ("groupmod", "--gid", str(number), "--", wanted.name))
        self._warn_of_files(actual, host)

    def forecast(self, wanted: Group, actual: GroupState, change: Change, host: Host) -> None:
        refuse_plain_users(host)
        databases = host.account_databases()
        if change.verb == REMOVE:
            databases.remove_group(wanted.name)
        else:
            databases.put_group(wanted.name, self._number(wanted, host))
            if change.verb != CREATE:
                self._warn_of_files(actual, host)
        host.accounts.forget()

    def _number(self, wanted: Group, host: Host) -> int:
        """Chosen here and not by groupadd, so that a dry run forecasts the same number."""
        if wanted.gid is not None:
            return wanted.gid
        return host.account_databases().free_gid(system=wanted.system)

    def _warn_of_files(self, actual: GroupState, host: Host) -> None:
        host.note(
            f"files of group {actual.gid} keep that number; `find / -xdev -gid {actual.gid}` lists those of one disk"
        )


PROVIDER = ShadowGroups()
