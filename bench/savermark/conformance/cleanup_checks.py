"""What cleanup must leave intact: 25 supersteps of a delta channel, then each method.

This is what single rules do not find: a cleanup that severs the chain raises nothing, the value is
just gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

from langgraph.channels.delta import DeltaChannel
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from savermark.conformance.model import Checks, Missing, fail, same

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

CHECKS = Checks("cleanup")

PRUNE, RUNS, COPY = "prune", "delete_for_runs", "copy_thread"
TURNS = 9  # of three supersteps each


def _extend(state: list[str], writes: Sequence[list[str]]) -> list[str]:
    return [*state, *(item for write in writes for item in write)]


class State(TypedDict):
    """A delta channel that stores a snapshot at every tenth update, and a plain one."""

    said: Annotated[list[str], DeltaChannel(_extend, snapshot_frequency=10)]
    count: int


class Talk:
    """A thread of 27 supersteps on the saver under test; each turn is a run of its own."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.id = str(uuid4())
        graph = StateGraph(State)
        graph.add_node("a", lambda s: {"said": [f"a{len(s['said'])}"], "count": len(s["said"])})
        graph.add_edge(START, "a")
        graph.add_edge("a", END)
        self.graph = graph.compile(checkpointer=api.saver)

    @classmethod
    async def held(cls, api: Api, method: str) -> Talk:
        """The thread with all of its turns; `Missing` where the saver lacks what it is for."""
        if not api.offers(method):
            raise Missing(f"no {method}")
        talk = cls(api)
        for turn in range(TURNS):
            await talk.say(f"h{turn}", talk.run(turn))
        return talk

    def at(self, thread_id: str | None = None) -> dict[str, Any]:
        """The config of this thread, or of another one."""
        return {"configurable": {"thread_id": thread_id or self.id}}

    def run(self, turn: int) -> str:
        """The run id of a turn."""
        return f"{self.id}-{turn}"

    async def say(self, word: str, run: str = "later", thread_id: str | None = None) -> None:
        """One more turn."""
        config = {**self.at(thread_id), "metadata": {"run_id": run}}
        await self.api.on(self.graph, "invoke", {"said": [word]}, config)

    async def state(self, thread_id: str | None = None) -> tuple[Any, Any]:
        """The latest values, and what runs next."""
        found = await self.api.on(self.graph, "get_state", self.at(thread_id))
        return found.values, found.next

    async def history(self, thread_id: str | None = None) -> list[Any]:
        """Id and values of every checkpoint, newest first."""
        rows = await self.api.items(self.graph, "get_state_history", self.at(thread_id))
        return [(row.config["configurable"]["checkpoint_id"], row.values) for row in rows]

    async def clean(self, method: str, *args: Any, **options: Any) -> None:
        """Call the method; `Missing` where the saver has none or refuses and touches nothing."""
        if not self.api.offers(method):
            raise Missing(f"no {method}")
        before = await self.history()
        try:
            await self.api.call(method, *args, **options)
        except NotImplementedError as refusal:
            same(await self.history(), before, f"the thread that {method} refused")
            raise Missing(f"refuses threads with delta channels: {refusal}") from refusal


def expected(turns: int, *more: str) -> tuple[dict[str, Any], tuple[()]]:
    """The state after so many turns, by the rules above and without a saver."""
    said: list[str] = []
    for word in (*(f"h{turn}" for turn in range(turns)), *more):
        said += [word, f"a{len(said) + 1}"]
    return {"said": said, "count": len(said) - 1}, ()


@CHECKS.rule(PRUNE, "25 supersteps: the latest state is as before")
async def _pruned(api: Api) -> None:
    talk = await Talk.held(api, PRUNE)
    before = await talk.state()
    same(before, expected(TURNS), "state before anything was pruned")
    await talk.clean("prune", [talk.id], strategy="keep_latest")
    same(await talk.state(), before, "state")


@CHECKS.rule(PRUNE, "25 supersteps: the thread goes on")
async def _pruned_goes_on(api: Api) -> None:
    talk = await Talk.held(api, PRUNE)
    await talk.clean("prune", [talk.id], strategy="keep_latest")
    await talk.say("more")
    same(await talk.state(), expected(TURNS, "more"), "state after another turn")


@CHECKS.rule(PRUNE, "25 supersteps: it deletes something, and twice is as once")
async def _pruned_twice(api: Api) -> None:
    talk = await Talk.held(api, PRUNE)
    before = await talk.history()
    await talk.clean("prune", [talk.id], strategy="keep_latest")
    once = await talk.history()
    if not 1 <= len(once) < len(before):
        fail(f"{len(once)} of {len(before)} checkpoints are left")
    await talk.clean("prune", [talk.id], strategy="keep_latest")
    same(await talk.history(), once, "checkpoints after a second prune")


@CHECKS.rule(PRUNE, "25 supersteps: other threads are untouched")
async def _pruned_apart(api: Api) -> None:
    talk, other = await Talk.held(api, PRUNE), await Talk.held(api, PRUNE)
    before = await other.history()
    await talk.clean("prune", [talk.id], strategy="keep_latest")
    same(await other.history(), before, "the other thread")


@CHECKS.rule(RUNS, "25 supersteps: the latest state is as before, whichever run goes")
async def _runs(api: Api) -> None:
    talk = await Talk.held(api, RUNS)
    before = await talk.state()
    for turn in range(TURNS - 1):
        await talk.clean("delete_for_runs", [talk.run(turn)])
        same(await talk.state(), before, f"state after run {turn + 1} of {TURNS} went")


@CHECKS.rule(RUNS, "25 supersteps: the thread goes on")
async def _runs_go_on(api: Api) -> None:
    talk = await Talk.held(api, RUNS)
    await talk.clean("delete_for_runs", [talk.run(turn) for turn in range(TURNS - 1)])
    await talk.say("more")
    same(await talk.state(), expected(TURNS, "more"), "state after another turn")


@CHECKS.rule(RUNS, "25 supersteps: without the last run the thread is as before that run")
async def _last_run(api: Api) -> None:
    talk = await Talk.held(api, RUNS)
    await talk.clean("delete_for_runs", [talk.run(TURNS - 1)])
    same(await talk.state(), expected(TURNS - 1), "state")
    await talk.say("instead")
    same(await talk.state(), expected(TURNS - 1, "instead"), "state after another turn")


@CHECKS.rule(COPY, "25 supersteps: state and history of the copy are the source's")
async def _copied(api: Api) -> None:
    talk, target = await Talk.held(api, COPY), str(uuid4())
    await talk.clean("copy_thread", talk.id, target)
    same(await talk.state(target), expected(TURNS), "state of the copy")
    same(await talk.history(target), await talk.history(), "history of the copy")


@CHECKS.rule(COPY, "25 supersteps: the copy and the source go on apart")
async def _copied_goes_on(api: Api) -> None:
    talk, target = await Talk.held(api, COPY), str(uuid4())
    await talk.clean("copy_thread", talk.id, target)
    before = await talk.history()
    await talk.say("more", thread_id=target)
    same(await talk.state(target), expected(TURNS, "more"), "state of the copy")
    same(await talk.history(), before, "the source")
