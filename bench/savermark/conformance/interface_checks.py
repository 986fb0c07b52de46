"""The rules of the interface that the runtime relies on, beyond single capabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import WRITES_IDX_MAP

from savermark.conformance.model import Checks, Missing, fail, same
from savermark.conformance.threads import Thread, snapshot

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

CHECKS = Checks("interface")

GET = "get through get_tuple"
CONTROL = "control channels"
SPACE = "namespace in every key"
METADATA = "metadata"
APIS = "sync and async"
THREAD = "thread id as the key"
TUPLE = "what a tuple tells"


def _writes(found: Any) -> list[tuple[str, Any]]:
    """Channel and value of the pending writes."""
    return [(write[1], write[2]) for write in found.pending_writes or ()]


@CHECKS.rule(GET, "get gives the checkpoint that get_tuple gives")
async def _get(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"x": 1})
    await thread.put("c2", "c1", {"x": 2})
    for name in ("c1", "c2", None):
        whole = await thread.tuple(name)
        same(await api.call("get", thread.at(name)), whole.checkpoint, f"get of {name}")


@CHECKS.rule(GET, "an unknown checkpoint is None, by either method")
async def _unknown(api: Api) -> None:
    known, unknown = Thread(api), Thread(api)
    await known.put("c1", values={"x": 1})
    unknown.ids = known.ids
    absent = Thread(api, known.id)
    absent.ids["c1"] = "00000000-0000-6000-8000-000000000000"
    for config in (unknown.at(), unknown.at("c1"), absent.at("c1")):
        same(await api.call("get_tuple", config), None, "get_tuple")
        same(await api.call("get", config), None, "get")


@CHECKS.rule(CONTROL, "their writes stand beside the task's other writes, not in their place")
async def _beside(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1")
    await thread.write("c1", ("x", 0), ("x", 1), ("x", 2), ("x", 3), ("x", 4))
    for channel in WRITES_IDX_MAP:
        await thread.write("c1", (channel, f"of {channel}"))
    wanted = [("x", n) for n in range(5)] + [(c, f"of {c}") for c in WRITES_IDX_MAP]
    same(sorted(_writes(await thread.tuple("c1"))), sorted(wanted), "pending writes")


@CHECKS.rule(CONTROL, "a later write to one replaces the earlier, an ordinary one stays")
async def _replaced(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1")
    for word in ("first", "second"):
        for channel in WRITES_IDX_MAP:
            await thread.write("c1", (channel, word))
        await thread.write("c1", ("x", word))
    wanted = [*((channel, "second") for channel in WRITES_IDX_MAP), ("x", "first")]
    same(sorted(_writes(await thread.tuple("c1"))), sorted(wanted), "pending writes")


@CHECKS.rule(CONTROL, "each task has its own")
async def _per_task(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1")
    for task in ("t1", "t2"):
        await thread.write("c1", ("__interrupt__", task), task=task)
    found = (await thread.tuple("c1")).pending_writes
    seen = sorted((write[0], write[2]) for write in found)
    same(seen, [("t1", "t1"), ("t2", "t2")], "interrupts")


async def _two_spaces(api: Api) -> tuple[Thread, Thread]:
    """One checkpoint id in the root and in a subgraph's namespace."""
    root = Thread(api)
    inner = Thread(api, root.id, "child:1")
    for thread, word in ((root, "root"), (inner, "inner")):
        await thread.put("c1", values={"x": word}, metadata={"of": word}, ident=root.ids.get("c1"))
        await thread.write("c1", ("x", word))
    return root, inner


@CHECKS.rule(SPACE, "a checkpoint id may occur in two namespaces")
async def _checkpoints_apart(api: Api) -> None:
    for thread, word in zip(await _two_spaces(api), ("root", "inner"), strict=True):
        for name in ("c1", None):
            found = await thread.tuple(name)
            same(found.checkpoint["channel_values"].get("x"), word, f"value in {word}")
            same(found.metadata.get("of"), word, f"metadata in {word}")
            seen = found.config["configurable"].get("checkpoint_ns")
            same(seen, thread.space, "namespace in the config")


@CHECKS.rule(SPACE, "writes, too")
async def _writes_apart(api: Api) -> None:
    for thread, word in zip(await _two_spaces(api), ("root", "inner"), strict=True):
        same(_writes(await thread.tuple("c1")), [("x", word)], f"writes in {word}")


@CHECKS.rule(SPACE, "list with a namespace gives only its checkpoints")
async def _listed_apart(api: Api) -> None:
    for thread, word in zip(await _two_spaces(api), ("root", "inner"), strict=True):
        found = await api.listed(thread.at())
        same([item.metadata.get("of") for item in found], [word], "listed")


@CHECKS.rule(SPACE, "no namespace means the root")
async def _default(api: Api) -> None:
    root, _ = await _two_spaces(api)
    await root.tuple()
    found = await api.call("get_tuple", {"configurable": {"thread_id": root.id}})
    if found is None:
        fail("a config without a namespace finds nothing")
    same(found.checkpoint["channel_values"].get("x"), "root", "value")


async def _sources(api: Api) -> Thread:
    thread, parent = Thread(api), None
    for step, source in enumerate(("input", "loop", "update", "fork"), start=-1):
        told = {"source": source, "step": step, "run_id": f"r{step % 2}", "ok": True}
        await thread.put(source, parent, {"x": step}, metadata=told)
        parent = source
    return thread


@CHECKS.rule(METADATA, "comes back as it was given")
async def _told(api: Api) -> None:
    thread = Thread(api)
    told = {
        "source": "loop",
        "step": 3,
        "parents": {"": "some-id"},
        "counters_since_delta_snapshot": {"d": [1, 2]},
        "run_id": "a run",
        "score": 1.5,
        "ok": True,
    }
    await thread.put("c1", metadata=told)
    found = (await thread.tuple("c1")).metadata
    same({key: found.get(key) for key in told}, told, "metadata")


@CHECKS.rule(METADATA, "list finds checkpoints by it")
async def _filtered(api: Api) -> None:
    thread = await _sources(api)
    for source in ("input", "loop", "update", "fork"):
        found = await api.listed(thread.at(), filter={"source": source})
        same([item.metadata["source"] for item in found], [source], f"source {source}")
    both = await api.listed(thread.at(), filter={"run_id": "r1", "ok": True})
    same([item.metadata["source"] for item in both], ["update", "input"], "two keys")
    same(await api.listed(thread.at(), filter={"source": "nobody"}), [], "no match")


@CHECKS.rule(METADATA, "a page is cut after filtering, newest first")
async def _paged(api: Api) -> None:
    thread = await _sources(api)
    found = await api.listed(thread.at(), filter={"run_id": "r0"}, limit=1)
    same([item.metadata["source"] for item in found], ["fork"], "first page")
    found = await api.listed(thread.at(), filter={"run_id": "r0"}, before=found[0].config)
    same([item.metadata["source"] for item in found], ["loop"], "second page")


async def _answers(api: Api, thread: Thread, *, other: bool) -> dict[str, Any]:
    """What each reading method says; an exception stands for itself."""
    asked: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
        "get_tuple": ((thread.at("c2"),), {}),
        "get": ((thread.at(),), {}),
        "list": ((thread.at(),), {"limit": 2}),
        "get_delta_channel_history": ((), {"config": thread.at(), "channels": ["d"]}),
    }
    answers: dict[str, Any] = {}
    for method, (args, options) in asked.items():
        try:
            if other:
                answers[method] = await api.other(method, *args, **options)
            elif method == "list":
                answers[method] = await api.listed(*args, **options)
            else:
                answers[method] = await api.call(method, *args, **options)
        except Exception as error:  # foreign code: raising is allowed, whatever it raises
            answers[method] = error
    return answers


@CHECKS.rule(APIS, "both say the same, or one raises")
async def _both(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"d": snapshot("s"), "x": [1]})
    await thread.write("c1", ("d", 1), path="~b")
    await thread.write("c1", ("d", 0), task="t0", path="~a")
    await thread.put("c2", "c1", {"x": [2]}, moved=["d"])
    await thread.write("c2", ("d", 2), ("__interrupt__", "wait"))
    own = await _answers(api, thread, other=False)
    others = await _answers(api, thread, other=True)
    told = [method for method, said in others.items() if not isinstance(said, Exception)]
    if not told:
        raise Missing("the other api raises")
    for method in told:
        same(others[method], own[method], f"{method} of the other api")


@CHECKS.rule(APIS, "what one stores the other finds, or refuses to store")
async def _stored(api: Api) -> None:
    thread = Thread(api)
    config = await thread.put("c1", values={"x": 1})
    try:
        await api.other("put_writes", config, [("x", "other")], "task")
    except Exception as error:  # foreign code: refusing is allowed, whatever it raises
        raise Missing("the other api raises") from error
    same(_writes(await thread.tuple("c1")), [("x", "other")], "pending writes")


@CHECKS.rule(THREAD, "put tells where the checkpoint is, and it is found there")
async def _where(api: Api) -> None:
    thread = Thread(api, space="child:1")
    config = await thread.put("c1", values={"x": 1})
    wanted = {"thread_id": thread.id, "checkpoint_ns": "child:1", "checkpoint_id": thread.ids["c1"]}
    where = config["configurable"]
    same({key: where.get(key) for key in wanted}, wanted, "config")
    found = await api.call("get_tuple", config)
    same(found.checkpoint["id"] if found else None, thread.ids["c1"], "id found there")


@CHECKS.rule(THREAD, "threads do not see one another")
async def _threads_apart(api: Api) -> None:
    one, two = Thread(api), Thread(api)
    for thread, word in ((one, "one"), (two, "two")):
        await thread.put("c1", values={"x": word}, ident=one.ids.get("c1"))
        await thread.write("c1", ("x", word))
    for thread, word in ((one, "one"), (two, "two")):
        found = await thread.tuple("c1")
        same(found.checkpoint["channel_values"].get("x"), word, "value")
        same(_writes(found), [("x", word)], "writes")
        same(len(await api.listed(thread.at())), 1, "listed")


@CHECKS.rule(THREAD, "deleting one leaves the others, and nothing of itself")
async def _deleted(api: Api) -> None:
    if not api.offers("delete_thread"):
        raise Missing("no delete_thread")
    one, two = Thread(api), Thread(api)
    inner = Thread(api, one.id, "child:1")
    for thread in (one, inner, two):
        await thread.put("c1", values={"x": 1})
        await thread.write("c1", ("x", 1))
    await api.call("delete_thread", one.id)
    for gone in (one, inner):
        same(await gone.found(), None, "deleted thread")
    same(_writes(await two.tuple()), [("x", 1)], "the other thread's writes")
    await one.put("c1", values={"x": 2}, ident=one.ids["c1"])
    same(_writes(await one.tuple()), [], "writes of the thread begun anew")


@CHECKS.rule(TUPLE, "the parent is named, and a root has none")
async def _parents(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1")
    await thread.put("c2", "c1")
    root, child = await thread.tuple("c1"), await thread.tuple("c2")
    same(root.parent_config, None, "parent of the root")
    named = (child.parent_config or {}).get("configurable", {})
    same(named.get("checkpoint_id"), thread.ids["c1"], "parent")


@CHECKS.rule(TUPLE, "pending writes come by task path, task and number")
async def _pending(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1")
    await thread.write("c1", ("x", "b0"), task="0" * 32, path="~b")
    await thread.write("c1", *[("x", f"a{n}") for n in range(12)], task="f" * 32, path="~a")
    await thread.write("c1", ("x", "none"), task="7" * 32)
    seen = [value for _, value in _writes(await thread.tuple("c1"))]
    same(seen, ["none", *(f"a{n}" for n in range(12)), "b0"], "pending writes")


@CHECKS.rule(TUPLE, "a channel that was not written keeps its value")
async def _carried(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"x": [1], "y": "a"})
    carried = {"x": [1], "y": "b"}
    await thread.put("c2", "c1", {"y": "b"})
    found = (await thread.tuple("c2")).checkpoint
    if "x" in found["channel_values"]:  # savers that store by version find it, others need it again
        same(found["channel_values"], carried, "values")
    same(sorted(found["channel_versions"]), ["x", "y"], "channels with a version")


@CHECKS.rule(TUPLE, "an id names one checkpoint for good: later ones do not change it")
async def _settled(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"x": [1]})
    before = await thread.tuple("c1")
    await thread.put("c2", "c1", {"x": [1, 2]})
    await thread.put("f2", "c1", {"x": [1, 3]})
    same(await thread.tuple("c1"), before, "the first checkpoint")
