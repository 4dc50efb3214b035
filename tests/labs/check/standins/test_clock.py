"""The clock of a student's program, which advances only when the check, or a reading, advances it."""

from shoal_labs.check.standins.clock import Clock


def test_a_loop_that_waits_for_a_time_ends_after_a_few_readings():
    events = [""]

    def note(kind, *_):
        events.append(kind)
        return events[-2]

    clock = Clock(note, folder="")
    start_s = clock.read()
    while clock.read() - start_s < 0.05:
        pass
    assert 0.05 <= clock.now_s - start_s < 0.07
    assert len(events) < 200
    events.append("batch")
    before_s = clock.now_s
    assert clock.read() - before_s < 1e-5
