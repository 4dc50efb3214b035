from shoal.report.plain_tables import aligned, width


def test_columns_align_in_any_alphabet():
    lines = aligned(["优化器", "s"], [["GD", "10"], ["Adam", "1"]], frozenset({1})).splitlines()
    assert {width(line) for line in lines} == {10}
