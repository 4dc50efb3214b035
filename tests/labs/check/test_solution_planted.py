"""Every planted error costs its own task alone and is named, in both forms; right folders have full marks."""

import pytest
from planted import outcomes, problem


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("lab", ["1", "2", "3", "4"])
def test_an_error_costs_its_own_task_and_is_named(tmp_path, lab):
    found = [
        (error and error.name, form, problem(edit, grade))
        for error, form, edit, grade in outcomes(lab, tmp_path)
    ]
    assert [each for each in found if each[2]] == []
