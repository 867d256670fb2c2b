"""What role kernel writes: GRUB's file as a shell reads it, names of mount units, limits, keys of sysctl."""

import subprocess

import pytest
from nodegate_apply.grub import grub_text, menu_lines
from nodegate_apply.kernel_limits import logins_text
from nodegate_apply.kernel_mounts import unit_name, unit_text
from nodegate_apply.kernel_sysctl import parts_of


def words_of(text, both, default):
    """GRUB_CMDLINE_LINUX and _DEFAULT once a shell has read the file, as grub-mkconfig does."""
    script = f"set -e\nGRUB_CMDLINE_LINUX='{both}'\nGRUB_CMDLINE_LINUX_DEFAULT='{default}'\n{text}\n"
    script += 'printf "%s\\n%s" "$GRUB_CMDLINE_LINUX" "$GRUB_CMDLINE_LINUX_DEFAULT"'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")


def test_words_are_put_last_once_and_unwanted_ones_taken_out():
    text = grub_text(["iommu=pt", "mitigations=off"], ["quiet", "nouveau.modeset", "splash=silent", "iommu"])
    both, default = words_of(
        text,
        "console=ttyS0 iommu=off quiet",
        "quiet nouveau.modeset=1 splash splash=silent mitigations=off x=*",
    )
    assert both == "console=ttyS0"
    assert default.split() == ["splash", "x=*", "iommu=pt", "mitigations=off"]


def test_nothing_wanted_and_nothing_there():
    assert words_of(grub_text([], ["quiet"]), "", "") == ["", ""]
    assert words_of(grub_text(["a=b"], []), "", "") == ["", " a=b"]


def test_entries_of_the_menu():
    text = (
        "menuentry 'Ubuntu' {\n\tlinux\t/boot/vmlinuz-6.8 root=UUID=1 ro iommu=pt\n}\n"
        "submenu 'Advanced' {\n\tmenuentry 'Ubuntu, with Linux 6.5' {\n"
        "\t\tlinux /vmlinuz-6.5 ro a $vt_handoff\n}\n"
        "\tmenuentry 'Ubuntu, with Linux 6.5 (recovery mode)' {\n"
        "\t\tlinux /vmlinuz-6.5 ro recovery nomodeset\n}\n}\n"
    )
    assert menu_lines(text) == [["root=UUID=1", "ro", "iommu=pt"], ["ro", "a", "$vt_handoff"]]


def test_entries_that_are_no_start_of_this_system():
    """As Debian 12 writes them: a memory test, and a system that os-prober found on another disk."""
    text = (
        'menuentry "Memory test (memtest86+x64.bin, serial console)" {\n'
        "\tlinux\t/boot/memtest86+x64.bin console=ttyS0,115200\n}\n"
        "menuentry 'Debian GNU/Linux 11 (on /dev/sdb2)' --class debian $menuentry_id_option"
        " 'osprober-gnulinux-simple-1' {\n\tlinux /vmlinuz-5.10 root=/dev/sdb2 ro\n}\n"
        "menuentry 'Debian GNU/Linux' {\n\tlinux\t/boot/vmlinuz-6.1 root=UUID=1 ro iommu=pt\n}\n"
    )
    assert menu_lines(text) == [["root=UUID=1", "ro", "iommu=pt"]]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models", "models.mount"),
        ("/mnt/weights-2/x.y/", "mnt-weights\\x2d2-x.y.mount"),
        ("/scratch space", "scratch\\x20space.mount"),
        ("/.hidden", "\\x2ehidden.mount"),
        ("/", "-.mount"),
    ],
)
def test_names_of_mount_units_are_those_of_systemd_escape(path, name):
    assert unit_name(path) == name


def test_a_network_mount_waits_for_the_network_and_holds_up_no_boot():
    mount = {"path": "/models", "fs_type": "nfs4", "source": "store:/a%b", "read_only": True}
    text = unit_text(mount)
    assert "Options=ro,nofail,_netdev\n" in text and "WantedBy=remote-fs.target" in text
    assert "What=store:/a%%b\n" in text and "After=network-online.target" in text


def test_limits_of_logins_are_in_their_own_units():
    text = logins_text({"Max locked memory": 1025, "Max open files": "unlimited", "Max realtime timeout": 5})
    assert text == (
        "* - memlock 2\nroot - memlock 2\n* - nofile unlimited\nroot - nofile unlimited\n"
    )  # bytes become KiB, rounded up; limits.conf knows no rttime


def test_keys_as_sysctl_reads_them():
    assert parts_of("net.ipv4.conf.eth0/1.rp_filter") == ["net", "ipv4", "conf", "eth0.1", "rp_filter"]
    assert parts_of("net/ipv4/conf/eth0.1/rp_filter") == ["net", "ipv4", "conf", "eth0.1", "rp_filter"]
