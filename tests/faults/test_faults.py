"""Every fault still fits the source, and its test still exists; `make faults` shows that the test catches it."""

from collections import Counter

import pytest
from planting import Fault, read_faults

FAULTS = read_faults()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_fault_fits_the_source_and_has_its_test(fault: Fault) -> None:
    assert fault.planted()
    fault.find_test()


def test_faults_are_many_and_each_is_its_own() -> None:
    assert len(FAULTS) >= 30
    assert max(Counter(fault.name for fault in FAULTS).values()) == 1
    assert max(Counter((fault.file, fault.old, fault.new) for fault in FAULTS).values()) == 1
