"""Area sensitivity: how many planted corruptions the verification itself detects."""

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from migrator.errors import ConfigurationError, UnreachableError
from migrator.pipeline.sessions import Sessions
from migrator.result import Finding, Tally, table_panel, unverified
from migrator.testing.mutations import MUTATIONS
from migrator.testing.mutations.mutation import Mutation
from migrator.verify.check import CheckContext, CheckResult, CheckSpec, outcome_of
from migrator.verify.scratch_databases import scratch_databases
from migrator.verify.sensitivity.sample import MADE_PROFILE, copy_sample, write_made_documents
from migrator.verify.sensitivity.trials import Trial, prepare, run_trials

MISSED = "a corruption that no check detected"
ENDING_WORDS = {
    "caught": "caught",
    "refused": "refused by the database itself",
    "missed": "missed",
    "no-material": "no row to plant it in",
    "errored": "a check ended in an error",
}


def mutations_caught(specs: Sequence[CheckSpec], context: CheckContext) -> CheckResult:
    """Apply every mutation in a scratch copy, one at a time, and record which of the checks fail."""
    try:
        sample, trials = measure(context, specs)
    except (ConfigurationError, UnreachableError) as error:
        return CheckResult(outcome=unverified(str(error)))
    return _result(context, sample, trials)


def measure(
    context: CheckContext, specs: Sequence[CheckSpec], classes: Sequence[Mutation] = MUTATIONS
) -> tuple[int, list[Trial]]:
    """Return how many documents the sample holds, and the trial of each mutation."""
    settings = context.settings
    with context.timed("planted corruptions"):
        with ExitStack() as closing:
            sessions = Sessions(settings)
            closing.callback(sessions.close)
            databases = closing.enter_context(scratch_databases(settings))
            sample = prepare(databases, lambda scratch: copy_sample(sessions, scratch.source))
            sessions.close()
            trials = run_trials(databases, classes, specs)
        bare = {one.name for one in trials if one.ending == "no-material"}
        if bare and settings.source.profile == MADE_PROFILE:
            again = _on_made_documents(context, [one for one in classes if one.name in bare], specs)
            trials = [again.get(one.name, one) for one in trials]
    return sample, trials


def _on_made_documents(
    context: CheckContext, classes: Sequence[Mutation], specs: Sequence[CheckSpec]
) -> dict[str, Trial]:
    with scratch_databases(context.settings) as databases:
        prepare(databases, write_made_documents)
        return {one.name: one for one in run_trials(databases, classes, specs, made=True)}


def _result(context: CheckContext, sample: int, trials: Sequence[Trial]) -> CheckResult:
    notes = {one.name: one.note for one in MUTATIONS}
    endings = Counter(one.ending for one in trials)
    caught = endings["caught"] + endings["refused"]
    missed = [one for one in trials if one.ending == "missed"]
    unexplained = [one for one in missed if not notes.get(one.name)]
    doubts = [f"{one.name}: {one.why}" for one in trials if one.ending == "errored"]
    return CheckResult(
        outcome=outcome_of(wrong=bool(unexplained), unsure=doubts),
        counts={
            "documents in the sample": sample,
            "classes": len(trials),
            "caught": caught,
            "missed": len(missed),
            "no row to plant it in": endings["no-material"],
        },
        tallies=tuple(_tally(one, notes.get(one.name, "")) for one in missed),
        findings=tuple(
            Finding(severity="difference", cause="missed", key=one.name, side=one.kind) for one in unexplained
        )[: context.listed],
        findings_total=len(unexplained),
        panels=(
            table_panel(
                "Planted corruptions, and the checks that detected them",
                ("corruption", "kind", "outcome", "detected by", "planted in"),
                [
                    (
                        one.name,
                        one.kind,
                        ENDING_WORDS[one.ending],
                        ", ".join(one.failed),
                        "made documents" if one.made else "the sample",
                    )
                    for one in trials
                ],
            ),
        ),
    )


def _tally(trial: Trial, note: str) -> Tally:
    return Tally(
        severity="explained" if note else "difference",
        cause="missed",
        path=trial.name,
        title=f"{MISSED}: {trial.name}",
        fix=note or "add a check that detects it: docs/verifiers.md",
        count=1,
        keys=(trial.name,),
    )


def checks(specs: Sequence[CheckSpec]) -> tuple[CheckSpec, ...]:
    """Return the check of how many mutations ``specs`` detect."""
    return (
        CheckSpec(
            id="sensitivity.mutations",
            title="A check detects every class of planted corruption",
            fails_if="only with `--sensitivity`: no check detected a planted corruption, and no note explains why",
            limits=(
                "Each class is planted once, in one row or document of a sample. This is no proof for every row.",
                "The scratch copy is loaded from the sample's documents. Rows of the real target are not copied.",
            ),
            run=partial(mutations_caught, specs),
        ),
    )
