"""`delta_channel_history`: what a walk gives, oldest first, from the nearest stored value on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from savermark.conformance.model import Checks, fail, same
from savermark.conformance.threads import Thread, snapshot

if TYPE_CHECKING:
    from savermark.conformance.apis import Api

CHECKS = Checks("delta")
CAPABILITY = "delta_channel_history"


async def _line(api: Api, length: int = 4, seed: int | None = 1) -> Thread:
    """c1 <- c2 <- ..., each with the write of its own number; a snapshot at `seed`."""
    thread = Thread(api)
    for number in range(1, length + 1):
        parent = f"c{number - 1}" if number > 1 else None
        values = {"d": snapshot("seed")} if number == seed else {}
        await thread.put(f"c{number}", parent, values, moved=["d"])
        await thread.write(f"c{number}", ("d", number))
    return thread


@CHECKS.rule(CAPABILITY, "writes come oldest first")
async def _order(api: Api) -> None:
    same(await (await _line(api)).values("c4"), [1, 2, 3], "writes")


@CHECKS.rule(CAPABILITY, "the target's own writes are left out")
async def _own(api: Api) -> None:
    thread = await _line(api, length=2)
    same(await thread.values("c2"), [1], "writes")
    same(await thread.values("c1"), [], "writes of a root")


@CHECKS.rule(CAPABILITY, "the seed is the nearest stored value, and its own writes count")
async def _seed(api: Api) -> None:
    thread = await _line(api, length=5, seed=3)
    found = (await thread.history("c5", "d"))["d"]
    same(getattr(found.get("seed"), "value", None), ["seed"], "seed")
    same([write[2] for write in found["writes"]], [3, 4], "writes from the seed on")


@CHECKS.rule(CAPABILITY, "without a stored value there is no seed, and the walk ends at the root")
async def _unseeded(api: Api) -> None:
    found = (await (await _line(api, seed=None)).history("c4", "d"))["d"]
    if "seed" in found:
        fail(f"a seed where none is stored: {found['seed']!r}")
    same([write[2] for write in found["writes"]], [1, 2, 3], "writes")


@CHECKS.rule(CAPABILITY, "a plain value from before delta channels is a seed")
async def _plain(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"d": ["old"]})
    await thread.write("c1", ("d", "a"))
    await thread.put("c2", "c1", moved=["d"])
    await thread.write("c2", ("d", "b"))
    await thread.put("c3", "c2", moved=["d"])
    found = (await thread.history("c3", "d"))["d"]
    same(found.get("seed"), ["old"], "seed")
    same([write[2] for write in found["writes"]], ["a", "b"], "writes")


@CHECKS.rule(CAPABILITY, "no channels give nothing")
async def _nothing(api: Api) -> None:
    same(dict(await (await _line(api)).history("c4")), {}, "history of no channels")


@CHECKS.rule(CAPABILITY, "without an id the newest checkpoint is meant")
async def _newest(api: Api) -> None:
    thread = await _line(api)
    same(await thread.values(None), await thread.values("c4"), "writes")


@CHECKS.rule(CAPABILITY, "each channel has its own seed and its own writes")
async def _channels(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", values={"a": snapshot("a")}, moved=["a", "b"])
    await thread.write("c1", ("a", 1), ("b", 2))
    await thread.put("c2", "c1", {"b": snapshot("b")}, moved=["a"])
    await thread.write("c2", ("b", 3), ("a", 4), ("other", 5))
    await thread.put("c3", "c2", moved=["a", "b"])
    found = await thread.history("c3", "a", "b")
    same(sorted(found), ["a", "b"], "channels")
    same([write[2] for write in found["a"]["writes"]], [1, 4], "writes of a")
    same([write[2] for write in found["b"]["writes"]], [3], "writes of b")
    same({write[1] for write in found["a"]["writes"]}, {"a"}, "channel of the writes")
    same(getattr(found["b"].get("seed"), "value", None), ["b"], "seed of b")


@CHECKS.rule(CAPABILITY, "a fork follows its parents, not the order of ids")
async def _fork(api: Api) -> None:
    thread = await _line(api, length=3)
    await thread.put("f1", "c2", moved=["d"])
    await thread.write("f1", ("d", "fork"))
    await thread.put("f2", "f1", moved=["d"])
    same(await thread.values("f2"), [1, 2, "fork"], "writes of the fork")
    same(await thread.values("c3"), [1, 2], "writes of the first branch")


@CHECKS.rule(CAPABILITY, "writes of one checkpoint come by task path, task and number")
async def _sorted(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", moved=["d"])
    await thread.write("c1", ("d", "b0"), task="0" * 32, path="~b")
    await thread.write("c1", ("d", "a0"), ("d", "a1"), task="f" * 32, path="~a")
    await thread.write("c1", ("d", "none"), task="7" * 32)
    await thread.put("c2", "c1", moved=["d"])
    same(await thread.values("c2"), ["none", "a0", "a1", "b0"], "writes")


@CHECKS.rule(CAPABILITY, "twelve writes of one task keep their order")
async def _twelve(api: Api) -> None:
    thread = Thread(api)
    await thread.put("c1", moved=["d"])
    await thread.write("c1", *[("d", number) for number in range(12)])
    await thread.put("c2", "c1", moved=["d"])
    same(await thread.values("c2"), list(range(12)), "writes")


@CHECKS.rule(CAPABILITY, "namespaces and threads do not mix, even under equal ids")
async def _apart(api: Api) -> None:
    root = Thread(api)
    inner, other = Thread(api, root.id, "child:1"), Thread(api)
    for thread, word in ((root, "root"), (inner, "inner"), (other, "other")):
        await thread.put("c1", moved=["d"], ident=root.ids.get("c1"))
        await thread.write("c1", ("d", word))
        await thread.put("c2", "c1", moved=["d"], ident=root.ids.get("c2"))
    for thread, word in ((root, "root"), (inner, "inner"), (other, "other")):
        same(await thread.values("c2"), [word], f"writes of {word}")
