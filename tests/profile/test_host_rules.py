"""What the parts host and gpus of a profile may not contradict."""

import pytest
from pydantic import ValidationError

from agent.node_profile import NodeProfile

SET = {
    "nvidia-driver-580-server": "580.159.04-0ubuntu1",
    "nvidia-fabricmanager": "580.159.04-1",
    "nvidia-persistenced": "1:580.159.04-0ubuntu0.24.04.1",
    "nvlsm": "2025.10.11-1",
    "nvidia-container-toolkit": "1.17.8-1",
}


def profile(driver_version=None, packages=None, **host):
    """The smallest profile with these parts."""
    return {
        "gpus": {"count": 0, "packages": packages or {}},
        "nvlink": {"links_per_gpu": 0},
        "fabric": {"kind": "none"},
        "driver_version": driver_version,
        "host": host,
    }


def refusal(data):
    with pytest.raises(ValidationError) as caught:
        NodeProfile.model_validate(data)
    return str(caught.value)


def test_a_set_of_one_release_is_taken():
    NodeProfile.model_validate(profile("580.159.04", SET))
    NodeProfile.model_validate(profile(None, SET))


def test_driver_and_fabric_manager_of_two_releases_are_refused():
    text = refusal(profile(packages=SET | {"nvidia-fabricmanager": "580.165.02-1"}))
    assert "nvidia-fabricmanager is of driver 580.165.02, nvidia-driver-580-server of 580.159.04" in text


def test_packages_of_another_driver_than_driver_version_are_refused():
    text = refusal(profile("590.10.01", {"nvidia-open": "580.159.04-1"}))
    assert (
        "nvidia-open is of driver 580.159.04, driver_version says 590.10.01; give both the same version"
        in text
    )


@pytest.mark.parametrize("version", ["", "580 159", "580=1", "$(reboot)", "latest"])
def test_what_is_no_version_is_refused(version):
    assert "packages" in refusal(profile(packages={"nvidia-open": version}))


@pytest.mark.parametrize(
    ("host", "line"),
    [
        ({"kernel_args": ["quiet"], "kernel_args_absent": ["quiet"]}, "quiet is wanted, and excluded by"),
        ({"kernel_args": ["iommu=pt"], "kernel_args_absent": ["iommu"]}, "iommu=pt is wanted, and excluded"),
        ({"iommu": "pt", "kernel_args_absent": ["intel_iommu"]}, "set by the kernel argument intel_iommu"),
        ({"modules": ["nouveau"], "modules_absent": ["nouveau"]}, "module nouveau is wanted and excluded"),
        ({"hugepages": {2048: 1}, "sysctl": {"vm.nr_hugepages": 2}}, "huge pages is given twice"),
        ({"aspm": "performance", "kernel_args": ["pcie_aspm=off"]}, "takes no PCIe power saving policy"),
        ({"kernel_args": ["a b"]}, "kernel_args"),
        ({"kernel_args": ["x='$(reboot)'"]}, "kernel_args"),
        ({"sysctl": {"vm.swappiness": "1\nkernel.panic = 1"}}, "sysctl"),
    ],
)  # fmt: skip
def test_what_contradicts_itself_or_breaks_a_file_is_refused(host, line):
    assert line in refusal(profile(**host))


def test_what_fits_is_taken():
    NodeProfile.model_validate(
        profile(iommu="pt", kernel_args=["iommu=pt"], kernel_args_absent=["iommu=off"], aspm="performance")
    )
