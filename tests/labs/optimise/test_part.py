import pytest
from outcomes import explained

from shoal_labs.optimise.compression import claims as compression
from shoal_labs.optimise.lab import LAB, PARTS, plan_for
from shoal_labs.optimise.memory import claims as memory
from shoal_labs.optimise.pruning import claims as pruning
from shoal_labs.optimise.straggler import claims as straggler
from shoal_labs.settings import OptimiseSettings
from shoal_labs.words import load_words


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_finding_in_the_words_is_a_claim_of_one_part(lang):
    for claim in explained(load_words(LAB.package, lang)):
        assert sum(hasattr(part, claim) for part in (compression, straggler, pruning, memory)) == 1, claim


def test_no_two_parts_have_runs_of_the_same_name():
    plan = plan_for(OptimiseSettings(quick=True))
    names = [name for part, made in PARTS.items() for name in made.runs(plan.parts[part])]
    assert len(names) == len(set(names)) == len(LAB.runs(plan))
