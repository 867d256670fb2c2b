"""A step of kind `question`: what no sensor tells, an operator answers with name."""

from __future__ import annotations

import math

from agent.checklist.model import Number, QuestionStep
from agent.checklist.record import Answer, StepRecord, Value
from agent.checklist.steps import Ended, Surroundings
from agent.errors import ConfigError
from agent.model import Verdict


class Unanswered(ConfigError):
    """Nobody could be asked."""


def run_question_step(step: QuestionStep, given: Surroundings) -> Ended:
    """Ask, and judge the answer. Raises Unanswered, or ConfigError for an answer that is none."""
    told = _told_by_sensor(step, given.record.steps)
    if told is not None:
        return Ended(Verdict.SKIP, told)
    while True:
        answer = given.ask(step.id, question_text(step, given.record.profile_hash))
        if answer is None:
            raise _unanswered(step)
        try:
            return judge_answer(step, answer)
        except ConfigError as cause:
            if not given.asks_person(step.id):
                raise
            given.say(str(cause))  # a slip of the keyboard does not end a run: the person is asked again


def _unanswered(step: QuestionStep) -> Unanswered:
    words = ", ".join(choice.answer for choice in step.choices)
    way = f"go on with --resume --answer {step.id}={'ANSWER' if words else 'NUMBER'} --who NAME"
    return Unanswered(
        f"step {step.id} asks: {step.question}", remedy=f"{way}; ANSWER is one of {words}" if words else way
    )


def _told_by_sensor(step: QuestionStep, steps: list[StepRecord]) -> str | None:
    """Why nobody need be asked: the step that it stands in for has found evidence."""
    if step.stands_in_for is None:
        return None
    told = next(one for one in steps if one.id == step.stands_in_for)
    if told.verdict in (Verdict.PASS, Verdict.WARN):
        return f"not asked: {told.id} has it from sensors"
    return None


def question_text(step: QuestionStep, profile_hash: str = "") -> str:
    """The question with the answers that it takes; `{profile_hash}` in it is the profile's."""
    asked = step.question.replace("{profile_hash}", profile_hash[:16])
    if step.number is not None:
        return f"{asked} (a number, in {step.number.unit})"
    lines = [f"  {choice.answer}: {choice.means}" for choice in step.choices]
    return "\n".join([asked, *lines])


def judge_answer(step: QuestionStep, answer: Answer) -> Ended:
    """What an answer makes of the step. Raises ConfigError for one that it does not take."""
    if step.number is not None:
        return _judge_number(step, step.number, answer)
    chosen = next((choice for choice in step.choices if choice.answer == answer.text.strip().lower()), None)
    if chosen is None:
        words = ", ".join(choice.answer for choice in step.choices)
        raise ConfigError(f"step {step.id}: {answer.text!r} is no answer", remedy=f"answer one of {words}")
    hint = step.on_fail if chosen.verdict in (Verdict.FAIL, Verdict.UNKNOWN) else ""
    return Ended(chosen.verdict, f"{answer.who} says: {chosen.means}", answer=answer, hint=hint)


def _judge_number(step: QuestionStep, number: Number, answer: Answer) -> Ended:
    try:
        value = float(answer.text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(
            f"step {step.id}: {answer.text!r} is no number", remedy=f"write it alone, in {number.unit}"
        )
    low = number.min is not None and value < number.min
    high = number.max is not None and value > number.max
    bounds = [
        f">= {number.min:g}" if number.min is not None else "",
        f"<= {number.max:g}" if number.max is not None else "",
    ]
    expected = " and ".join(filter(None, bounds))
    verdict = Verdict.FAIL if low or high else Verdict.PASS
    told = Value(
        name=step.id,
        subject="node",
        value=value,
        unit=number.unit,
        expected=expected or None,
        verdict=verdict,
    )
    summary = f"{answer.who} reads {value:g} {number.unit}{f', wanted {expected}' if expected else ''}"
    hint = step.on_fail if verdict is Verdict.FAIL else ""
    return Ended(verdict, summary, values=(told,), answer=answer, hint=hint)
