"""The scenarios of the contract: how each thread comes about, what is protected, how it goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import HumanMessage
from langgraph.types import Command

from savermark.contract.graphs import ASK, BOOM, Build, channels, chat, family, parallel
from savermark.contract.play import Play, State, Step


@dataclass(frozen=True, slots=True)
class Told:
    """What a scenario's thread came to: the ids a client still holds, by a name of ours."""

    marks: Mapping[str, str] = field(default_factory=dict)
    protect: tuple[str, ...] = ()  # names among the marks

    @property
    def protected(self) -> frozenset[str]:
        """The ids that a prune must protect."""
        return frozenset(self.marks[name] for name in self.protect)


Outcomes = list[tuple[str, Any]]  # what was done, and what came of it


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of thread. `goes_on` uses the thread after the prune, and its twin the same way."""

    key: str
    title: str
    build: Build
    play: Callable[[str], Play[Told]]
    goes_on: Callable[[str, Told], Play[Outcomes]]

    def __str__(self) -> str:
        """Key and title."""
        return f"{self.key}: {self.title}"


def _say(thread: str, text: str, at: str | None = None, *, fails: bool = False) -> Step:
    """A person's message. Its id is its text, so that twins agree."""
    message = {"messages": [HumanMessage(text, id=text)]}
    return Step("run", thread, at, message, fails=fails)


def _topic(thread: str, text: str, at: str | None = None) -> Step:
    """The same for the graph with subgraphs."""
    given = {"messages": [HumanMessage(text, id=text)], "topic": text}
    return Step("run", thread, at, given)


def _talk(thread: str, *texts: str) -> Play[list[str]]:
    """Turns; the id of the newest checkpoint after each."""
    ids = []
    for text in texts:
        state: State = yield _say(thread, text)
        ids.append(state.checkpoint_id)
    return ids


def _turn(thread: str, _: Told) -> Play[Outcomes]:
    state: State = yield _say(thread, "and then")
    return [("the next turn", state.told)]


def _growth(thread: str) -> Play[Told]:
    yield from _talk(thread, "one", "two", "three", "four", "five", "six")
    return Told()


def _ancestors(thread: str) -> Play[Told]:
    ids = yield from _talk(thread, "one", "two", "three", "four", "five")
    return Told({"before three": ids[1], "before four": ids[2]}, ("before three", "before four"))


def _branches(thread: str, told: Told) -> Play[Outcomes]:
    """Regenerate from older turns, and see that the branches do not disturb one another."""
    found: Outcomes = []
    for name in told.protect:
        base: State = yield Step("state", thread, told.marks[name])
        found.append((f"the state {name}", base.told))
        state: State = yield _say(thread, f"again {name}", told.marks[name])
        found.append((f"a branch from {name}", state.told))
    return found


def _turn_and_branches(thread: str, told: Told) -> Play[Outcomes]:
    turn = yield from _turn(thread, told)
    branches = yield from _branches(thread, told)
    return turn + branches


def _targets(thread: str) -> Play[Told]:
    """A settled checkpoint and one in the middle of a turn, both held by a client."""
    ids = yield from _talk(thread, "one", "two", "three")
    history: list[State] = yield Step("history", thread)
    middle = next(each.checkpoint_id for each in history if each.upcoming == ("answer",))
    yield from _talk(thread, "four", "five")
    return Told({"settled": ids[1], "mid-turn": middle}, ("settled", "mid-turn"))


def _resumes(thread: str, told: Told) -> Play[Outcomes]:
    found: Outcomes = []
    for name in told.protect:
        state: State = yield Step("state", thread, told.marks[name])
        found.append((f"a read of the {name} checkpoint", state.told))
    replayed: State = yield Step("run", thread, told.marks["mid-turn"])
    return [*found, ("a replay from the middle of a turn", replayed.told)]


def _waiting(thread: str) -> Play[Told]:
    yield from _talk(thread, "one", "two", f"{ASK} me")
    return Told()


def _answers(thread: str, _: Told) -> Play[Outcomes]:
    asked: State = yield Step("state", thread)
    state: State = yield Step("run", thread, given=Command(resume="yes"))
    more: State = yield _say(thread, "and then")
    found = [("the open question", asked.told), ("the answer", state.told)]
    return [*found, ("the next turn", more.told)]


def _leaf(thread: str) -> Play[Told]:
    yield from _talk(thread, "one", "two", "three")
    yield Step("durations", thread, given={"run-3": 3})
    return Told()


def _sibling(thread: str) -> Play[Told]:
    ids = yield from _talk(thread, "one", "two", "three", "four")
    update = {"messages": [HumanMessage("aside", id="aside")]}
    yield Step("update", thread, ids[1], update, "answer")
    yield _say(thread, "five", ids[3])
    return Told()


def _links(thread: str) -> Play[Told]:
    """Duration-only checkpoints from which later runs went on: a bare one, one with writes."""
    ids = yield from _talk(thread, "one", "two")
    yield Step("durations", thread, given={"run-2": 2})
    yield from _talk(thread, "three")
    yield Step("durations", thread, given={"run-3": 3})
    update = {"messages": [HumanMessage("a note", id="a note")]}
    yield Step("update", thread, given=update, as_node="answer")
    yield from _talk(thread, "four")
    return Told({"before the links": ids[1]}, ("before the links",))


def _parked(thread: str) -> Play[Told]:
    """A duration-only copy of a checkpoint that waits for an answer; a client has the original."""
    yield from _talk(thread, "one", "two")
    parked: State = yield _say(thread, f"{ASK} me")
    yield Step("copy", thread, given={"run-3": 3})
    return Told({"parked": parked.checkpoint_id}, ("parked",))


def _unparks(thread: str, told: Told) -> Play[Outcomes]:
    copy: State = yield Step("state", thread)
    asked: State = yield Step("state", thread, told.marks["parked"])
    return [("the copy", copy.told), ("the open question", asked.told)]


def _failed(thread: str) -> Play[Told]:
    yield from _talk(thread, "one", "two")
    yield _say(thread, f"{BOOM} three", fails=True)
    return Told()


def _retries(thread: str, _: Told) -> Play[Outcomes]:
    again: State = yield Step("run", thread)
    state: State = yield _say(thread, "and then")
    return [("the run that failed, once more", again.told), ("the next turn", state.told)]


def _supports(thread: str) -> Play[Told]:
    """The protected turn needs ancestors of which one channel cannot be rebuilt any more."""
    ids = yield from _talk(thread, *(f"message {number}" for number in range(10)))
    return Told({"older turn": ids[8]}, ("older turn",))


def _subgraphs(thread: str) -> Play[Told]:
    ids = []
    for text in ("one", "two", "three", "four"):
        state: State = yield _topic(thread, text)
        ids.append(state.checkpoint_id)
    return Told({"older turn": ids[1]}, ("older turn",))


def _remembers(thread: str, told: Told) -> Play[Outcomes]:
    state: State = yield _topic(thread, "and then")
    older: State = yield _topic(thread, "instead", told.marks["older turn"])
    return [("the next turn", state.told), ("a turn from the older one", older.told)]


def _called(thread: str) -> Play[Told]:
    for text in ("one", "two", f"{ASK} me"):
        yield _topic(thread, text)
    return Told()


def _returns(thread: str, _: Told) -> Play[Outcomes]:
    asked: State = yield Step("state", thread)
    state: State = yield Step("run", thread, given=Command(resume="yes"))
    more: State = yield _topic(thread, "and then")
    found = [("the open question", asked.told), ("the answer", state.told)]
    return [*found, ("the next turn", more.told)]


_ALL = (
    Scenario("A", "a thread that grows", chat, _growth, _turn),
    Scenario("B", "branches from older turns", chat, _ancestors, _branches),
    Scenario("C", "explicit resume targets", chat, _targets, _resumes),
    Scenario("D", "pending writes", parallel, _waiting, _answers),
    Scenario("E1", "a trailing duration-only leaf", chat, _leaf, _turn),
    Scenario("E2", "a childless sibling branch", chat, _sibling, _turn),
    Scenario("F", "duration-only links", chat, _links, _turn_and_branches),
    Scenario("G1", "a copy of a parked checkpoint", parallel, _parked, _unparks),
    Scenario("G2", "a run that failed", chat, _failed, _retries),
    Scenario("H", "channels with different snapshots", channels, _supports, _turn_and_branches),
    Scenario("I1", "a subgraph that remembers", family, _subgraphs, _remembers),
    Scenario("I2", "a subgraph that waits for an answer", family, _called, _returns),
)
SCENARIOS: Mapping[str, Scenario] = {each.key: each for each in _ALL}
