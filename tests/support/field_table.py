"""Public reports of what went wrong for others, and the tests that fail if it comes here."""

from __future__ import annotations

HERE = "incidents/test_field_failures.py"
REPORTS = "checks/test_field_reports.py"
GPU = "checks/test_gpu_incidents.py"
NVLINK = "checks/test_field_nvlink.py"
NETWORK = "checks/test_field_network.py"
HANGS = "nvml/test_nvml_hangs.py"

#: Reports of one row, what went wrong, and FILE::TEST of the tests that stand for it.
TABLE: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    (
        ("NVIDIA/DCGM#242",),
        "diag fails on 0.0 s thermal violation",
        (
            f"{REPORTS}::test_75_degrees_with_margin_is_no_thermal_fault",
            f"{HERE}::test_a_case_stands_for_the_report",
        ),
    ),
    (
        ("NVIDIA/DCGM#270",),
        "thermal warning while only 75 C",
        (f"{REPORTS}::test_75_degrees_with_margin_is_no_thermal_fault",),
    ),
    (
        ("NVIDIA/NVSentinel#1666",),
        "hardware power brake asserted 36 h on 9 nodes, unseen",
        (
            f"{GPU}::test_a_brake_of_36_hours_is_seen",
            f"{REPORTS}::test_a_power_brake_stays_seen_for_as_long_as_it_lasts",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#465",),
        "harmless power event told operators to call support",
        (
            f"{GPU}::test_a_harmless_power_event_calls_nobody",
            f"{GPU}::test_no_power_event_at_all_tells_anyone_to_call_support",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#883", "NVIDIA/NVSentinel#889"),
        "fabric manager dead 20 days, every GPU looked fine",
        (
            f"{NVLINK}::test_a_fabric_manager_dead_for_20_days_is_seen_although_every_gpu_looks_fine",
            f"{NVLINK}::test_a_fabric_that_was_never_started_is_seen_although_its_manager_runs",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#890",),
        "PCIe downtraining and silent throttling missed",
        (f"{GPU}::test_downtraining_is_seen_under_load_and_not_at_idle",),
    ),
    (
        ("NVIDIA/NVSentinel#1361",),
        "intentionally unused second port marked fatal",
        (
            f"{NETWORK}::test_ports_that_the_platform_does_not_use_are_ignored",
            f"{NETWORK}::test_each_data_port_of_a_multi_plane_card_counts",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#155",),
        "GPU off bus without any Xid",
        (
            f"{NVLINK}::test_a_gpu_off_the_bus_without_any_xid",
            f"{GPU}::test_a_gpu_off_the_bus_fails_although_nvml_hangs",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#1334",),
        "mlx5 driver wedged 5 days, link state up",
        (
            f"{NETWORK}::test_a_wedged_driver_is_seen_although_its_link_is_up",
            f"{NETWORK}::test_commands_that_time_out_are_a_wedged_driver_too",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#1748",),
        "DCGM hang kills monitor 49 times, ECC fault never reported",
        (
            f"{HERE}::test_a_hang_on_one_gpu_hides_no_fault_of_another",
            f"{HANGS}::test_a_hung_gpu_times_out_and_the_others_go_on",
        ),
    ),
    (
        ("NVIDIA/NVSentinel#458",),
        "node stays cordoned after recovery",
        (
            f"{HERE}::test_a_node_that_is_well_again_serves_again",
            f"{NETWORK}::test_a_link_that_is_back_passes_by_itself",
        ),
    ),
    (
        ("leptonai/gpud#1247",),
        "CX8 flap at bring-up drains node until manual clear",
        (f"{NETWORK}::test_one_flap_at_bring_up_drains_nothing_and_needs_nobody",),
    ),
    (
        ("leptonai/gpud#1072",),
        "no local way to reset a sticky Xid state",
        (
            f"{NVLINK}::test_an_operator_clears_a_fault_of_the_kernel_log_on_the_node_itself",
            "runner/test_runner.py::test_clear_forgets_a_sticky_failure_and_checks_anew",
        ),
    ),
    (
        ("leptonai/gpud#1208",),
        "zero or negative margin reading gave false alarms",
        (f"{REPORTS}::test_a_margin_of_zero_or_less_on_a_cool_gpu_is_no_alarm",),
    ),
    (
        ("leptonai/gpud#1085",),
        "all NVLinks inactive yet healthy",
        (f"{NVLINK}::test_all_links_inactive_is_never_healthy",),
    ),
    (
        ("scitix/sichek#67",),
        "CLI hangs with nvidia-smi",
        (
            f"{HERE}::test_a_single_pass_ends_although_the_driver_hangs",
            f"{HANGS}::test_init_that_hangs_has_a_deadline_and_rests",
        ),
    ),
    (
        ("NVIDIA/gpu-monitoring-tools#188",),
        "stale data served, health says fine",
        (
            f"{REPORTS}::test_a_source_that_serves_old_values_is_not_healthy",
            "api/test_answers.py::test_the_age_is_computed_when_it_is_asked_for",
        ),
    ),
    (
        ("NVIDIA/go-nvml#152", "NVIDIA/open-gpu-kernel-modules#1333"),
        "NVML init hangs on H200; later calls stuck in D state",
        (
            f"{HANGS}::test_init_that_hangs_has_a_deadline_and_rests",
            f"{HANGS}::test_two_stuck_processes_need_a_reboot",
            f"{HANGS}::test_a_stuck_start_is_not_tried_again",
        ),
    ),
    (
        ("mej/nhc#95", "mej/nhc#161"),
        "unexplained check timeouts drain nodes",
        (
            f"{HERE}::test_timeouts_are_explained_and_drain_nobody",
            "runner/test_runner_threads.py::test_an_overrun_is_told_once_with_the_stack_of_the_stuck_thread",
        ),
    ),
    (
        ("Azure/azurehpc-health-checks#162",),
        "18 links assumed, SKU has 12 by design",
        (f"{NVLINK}::test_twelve_links_by_design_are_twelve",),
    ),
    (
        ("patroni/patroni#772", "patroni/patroni#1859"),
        "ready too early; 503 while fine",
        (
            "gate/test_gate_paths.py::test_an_engine_found_warm_serves_only_after_every_admission_check_has_run",
            "runner/test_runner.py::test_one_bad_sample_of_a_hard_check_closes_nothing",
            f"{HERE}::test_one_bad_reading_of_anything_closes_nothing",
        ),
    ),
    (
        ("kubernetes/node-problem-detector#645",),
        "unprobed conditions start as healthy",
        (
            f"{REPORTS}::test_nothing_starts_as_healthy",
            "runner/test_evaluate.py::test_an_empty_snapshot_never_admits",
        ),
    ),
    (
        ("vllm-project/vllm#36960", "vllm-project/vllm#39863", "gonka-ai/gonka#1421"),
        "health 200 with dead or hung engine; busy engine times out and is killed",
        (
            f"{REPORTS}::test_health_200_with_a_hung_engine_is_not_healthy",
            f"{REPORTS}::test_a_busy_engine_is_not_killed",
            "launch/test_canary.py::test_no_answer_but_progress_is_busy",
        ),
    ),
)
