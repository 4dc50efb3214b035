"""Every kind of trial, and what runs one of them."""

import random
import sys
import traceback

import file_faults
import malformed_inputs
import process_faults
import run_faults
import strategy_faults
from stage import Stage, TrialFailedError, new_nursery

FAULTS = {
    process_faults.dies: 26,
    process_faults.raises: 8,
    process_faults.killed_at_any_moment: 26,
    process_faults.killed_while_saving: 14,
    process_faults.stopped_and_continued: 14,
    process_faults.stopped_for_good: 6,
    process_faults.loops: 6,
    process_faults.signalled: 26,
    process_faults.signalled_while_starting: 16,
    process_faults.strangers: 10,
    process_faults.cut: 8,
    strategy_faults.dies_at_a_place: 28,
    strategy_faults.launcher_dies_at_a_place: 8,
    strategy_faults.stops_at_a_place: 10,
    strategy_faults.raises_at_a_place: 12,
    strategy_faults.nan_at_a_place: 12,
    strategy_faults.signalled_at_a_place: 26,
    run_faults.bad_gradients: 16,
    run_faults.full_disk: 12,
    run_faults.folder_gone: 8,
    run_faults.misfits: 10,
    run_faults.closed_streams: 6,
    run_faults.exits: 6,
    run_faults.users_programs: 16,
    file_faults.damaged_checkpoint: 20,
    file_faults.forged_manifest: 10,
    file_faults.damaged_settings: 8,
    file_faults.damaged_events: 8,
    file_faults.damaged_result: 8,
}
"""Kinds of faults, and how often each occurs."""
NUM_FAULTS = sum(FAULTS.values())
NUM_INPUTS = 400


def kind_of(seed, number):
    """The kind of this trial; any NUM_FAULTS numbers in a row contain each kind as often as the table says."""
    kinds = [kind for kind, count in FAULTS.items() for _ in range(count)]
    random.Random(f"kinds:{seed}").shuffle(kinds)
    return kinds[number % len(kinds)]


class Runner:
    """Runs trials one after the other; the nursery, and weights of runs without a fault, serve all of them."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.nursery = new_nursery()
        self._faultless = {}

    def run(self, trial):
        """Run `fault:N` or `input:N`: (kind, about, outcome), or a TrialFailedError with the replay command."""
        what, _, number = trial.partition(":")
        kind = kind_of(self.seed, int(number)) if what == "fault" else malformed_inputs.refused
        stage = Stage(self.nursery, self.folder / trial.replace(":", "-"), self._faultless)
        chance = random.Random(f"{self.seed}:{trial}")
        try:
            kind(stage, chance)
            stage.close()
        except Exception as error:
            stage.close(failed=True)
            what = str(error) if isinstance(error, TrialFailedError) else traceback.format_exc()
            raise TrialFailedError(
                f"{trial}, {kind.__name__}: {stage.about}\n  {what}\n"
                f"  repeat with: {sys.executable} tests/faults/suite.py --seed {self.seed} --only {trial}"
            ) from None
        return kind.__name__, stage.about, stage.outcome

    def close(self):
        self.nursery.close()
