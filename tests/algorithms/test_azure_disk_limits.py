"""AzureDiskLimits, by a table of what pods bring to nodes."""

import pytest

from algorithms.azure_disk_limits import MOST_DISKS, AzureDiskLimits
from tests.algorithms.disk import CASES, Disks

DISKS = Disks(
    AzureDiskLimits, "kubernetes.io/azure-disk", "attachable-volumes-azure-disk", MOST_DISKS, "azureDisk", "diskName"
)


@pytest.mark.parametrize(("volumes", "refused"), CASES)
def test_filter(volumes, refused):
    assert DISKS.filter(volumes) == DISKS.expected(refused)


def test_the_arguments_say_what_nodes_take_that_do_not_tell_themselves():
    assert DISKS.filter(["x", "y"], {"maxVolumes": 1}).keys() == {"empty", "full", "large"}
