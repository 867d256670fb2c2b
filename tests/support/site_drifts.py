"""How all settings of each role are spoilt: shell on the stand-in host, values at its BMC's side door."""

from __future__ import annotations

from typing import Any

from drift_kit import OLD_DRIVER, PACKAGES
from standin_seed import FIRST_FIRMWARE, HOME

NODE, SYS = f"/{HOME}/node", f"/{HOME}/sys"
_OLD = " ".join(f"{name}={OLD_DRIVER}-0ubuntu1" for name in PACKAGES)
#: By role: what the host runs.
ON_HOST: dict[str, str] = {
    "kernel": f"""
sysctl -qw vm.swappiness=60 kernel.numa_balancing=1 net.core.somaxconn=128
echo always > {SYS}/kernel/mm/transparent_hugepage/enabled
echo powersave > {SYS}/devices/system/cpu/cpu3/cpufreq/scaling_governor
echo powersave > {SYS}/module/pcie_aspm/parameters/policy
echo 100 > {SYS}/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
for bridge in {SYS}/bus/pci/devices/*; do
    case $(cat $bridge/class) in 0x0604*) setpci -s $(basename $bridge) ECAP_ACS+6.w=5d:ff || true;; esac
done
printf '/swap.img file 8388604 0 -2\\n' >> /{HOME}/proc/swaps
grep -q swap.img /etc/fstab && sed -i '/swap.img/d' /etc/fstab
echo '/swap.img none swap sw 0 0' >> /etc/fstab
modprobe nouveau
modprobe -r msr
sed -i 's/iommu=pt/iommu=off quiet/' /boot/grub/grub.cfg /{HOME}/proc/cmdline
for file in {SYS}/kernel/iommu_groups/*/type; do echo DMA-FQ > $file; done
systemctl disable --now good.service
umount /models
mount --bind /srv /models
mount -o remount,bind,ro /models
rm -f /etc/security/limits.d/60-nodegate.conf
sed -i s/1048576/1024/ /etc/systemd/system/nodegate-engine@.service.d/60-nodegate-limits.conf
""",
    "gpu": f"""
modprobe -r nvidia_peermem
modprobe -r nvidia_uvm
systemctl stop nvidia-fabricmanager.service nvidia-persistenced.service
nvidia-smi -pm 0
nvidia-smi -pl 400
nvidia-smi -mig 1
nvidia-smi -e 0
sed -i 's/"ecc_enabled": true/"ecc_enabled": false/
    s/"driver_version": "[^"]*"/"driver_version": "{OLD_DRIVER}"/
    s/"nvml_version": "[^"]*"/"nvml_version": "13.{OLD_DRIVER}"/' {NODE}/nvml.json
for file in {SYS}/module/nvidia*/version; do echo {OLD_DRIVER} > $file; done
apt-get -qq update
apt-get -qq -y install --allow-downgrades --allow-change-held-packages {_OLD}
apt-mark unhold {" ".join(PACKAGES)}
""",
    "nic": f"""
bdf() {{ basename $(readlink {SYS}/class/infiniband/$1/device); }}
mlnx_qos -i eth1 --dcbx fw --trust pcp --pfc 0,0,0,0,0,1,0,0
ethtool -A eth2 autoneg off rx on tx on
ethtool -G eth3 rx 512 tx 512
echo 1500 > {SYS}/class/net/eth4/mtu
echo 0 > {SYS}/class/net/eth5/ecn/roce_rp/enable/3
echo 7 > {SYS}/class/net/eth6/ecn/roce_np/cnp_dscp
setpci -s $(bdf mlx5_7) CAP_EXP+08.w=2000:7000
mlxconfig -d $(bdf mlx5_0) -y set ATS_ENABLED=1 NUM_OF_VFS=2
systemctl start nodegate-apply-check@nic.service || true
""",
    "firmware": f"""
sed -i 's/"\\(burned\\|running\\)": "[^"]*"/"\\1": "{FIRST_FIRMWARE}"/' /{HOME}/machine.json
for file in {SYS}/class/infiniband/mlx5_*/fw_ver; do echo {FIRST_FIRMWARE} > $file; done
""",
    "nccl_topology": """
sed -i 's/speed="[^"]*"/speed="1"/' /etc/nodegate/nccl-topo.xml
echo NCCL_DEBUG=INFO >> /etc/nccl.conf
""",
    "engine": """
cd /opt/engine/lib/python3*/site-packages
sed -i 's/^Version: .*/Version: 0.9.0/' standin_engine-*/METADATA
mv standin_engine-1.0.0.dist-info standin_engine-0.9.0.dist-info || true
""",
    "agent": """
echo '# by hand' >> /etc/nodegate/profile.yaml
echo '# by hand' >> /etc/nodegate/agent.env
chmod 0644 /etc/nodegate/bmc-ca.pem
echo >> /etc/nodegate/bmc-ca.pem
echo '# by hand' >> /etc/systemd/system/nodegate.service
""",
}
#: By role: what the side door of the BMC is told.
AT_BMC: dict[str, dict[str, Any]] = {
    "bios": {
        f"machine.bios.{name}": value
        for name, value in {
            "AcPwrRcvry": "Last",
            "SysProfile": "PerfPerWattOptimizedDapc",
            "ProcCStates": "Enabled",
            "PcieAspmL1": "Enabled",
            "NumaNodesPerSocket": "4",
            "SriovGlobalEnable": "Disabled",
            "IommuSupport": "Disabled",
            "MmioAbove4Gb": "Disabled",
            "ProcX2Apic": "Disabled",
        }.items()
    },
    "firmware": {
        "machine.firmware.HGX_FW_GPU_SXM_3.version": "96.00.89.00.01",
        "machine.firmware.HGX_FW_NVSwitch_1.version": "96.10.6D.00.01",
        "machine.firmware.SSD_0.version": "1.2.0",
    },
}
