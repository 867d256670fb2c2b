/* SIMULATED NVML: the readings of one device, answered from a file (see nvml_file.h). */
#include <stdio.h>
#include <string.h>

#include "nvml_calls.h"

#define MAX_PROCESSES 64

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, unsigned sensor, unsigned *out)
{
    BEGIN(gpu->number);
    return sensor ? NVML_ERROR_INVALID_ARGUMENT : put_uint(gpu, "temperature", out);
}

nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t gpu, nvmlTemperature_v1_t *out)
{
    BEGIN(gpu->number);
    return out->sensor ? NVML_ERROR_INVALID_ARGUMENT : put_uint(gpu, "temperature", (unsigned *)&out->temperature);
}

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t gpu, nvmlMarginTemperature_v1_t *out)
{
    BEGIN(gpu->number);
    if (out->version != ((1u << 24) | sizeof *out))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return put_uint(gpu, "margin", (unsigned *)&out->margin);
}

nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t gpu, unsigned threshold, unsigned *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "threshold.%u", threshold);
    return put_uint(gpu, key, out);
}

GET_UINT(nvmlDeviceGetPowerUsage, "power_mw")
GET_UINT(nvmlDeviceGetEnforcedPowerLimit, "enforced_limit_mw")
GET_UINT(nvmlDeviceGetPowerManagementLimit, "requested_limit_mw")
GET_UINT(nvmlDeviceGetPowerManagementDefaultLimit, "default_limit_mw")
GET_UINT(nvmlDeviceGetPersistenceMode, "persistence")

nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t gpu, unsigned *min, unsigned *max)
{
    BEGIN(gpu->number);
    int code = put_uint(gpu, "min_limit_mw", min);
    return code == NVML_SUCCESS ? put_uint(gpu, "max_limit_mw", max) : code;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t gpu, unsigned long long *out)
{
    BEGIN(gpu->number);
    return put_ulonglong(gpu, "event_reasons", out);
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, unsigned clock, unsigned *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "clock.%u", clock);
    return put_uint(gpu, key, out);
}

nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t gpu, unsigned clock, unsigned *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "max_clock.%u", clock);
    return put_uint(gpu, key, out);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, unsigned *out)
{
    BEGIN(gpu->number);
    int code = put_uint(gpu, "utilization_gpu", &out[0]);
    return code == NVML_SUCCESS ? put_uint(gpu, "utilization_memory", &out[1]) : code;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, unsigned long long *out)
{
    BEGIN(gpu->number);
    int code = put_ulonglong(gpu, "memory_total", &out[0]);
    if (code == NVML_SUCCESS)
        code = put_ulonglong(gpu, "memory_used", &out[2]);
    if (code == NVML_SUCCESS)
        out[1] = out[0] - out[2];
    return code;
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending)
{
    BEGIN(gpu->number);
    int code = put_uint(gpu, "ecc_current", current);
    return code == NVML_SUCCESS ? put_uint(gpu, "ecc_pending", pending) : code;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t gpu, unsigned type, unsigned counter, unsigned long long *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "ecc.%u.%u", type, counter);
    return put_ulonglong(gpu, key, out);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t gpu, unsigned *corrected, unsigned *uncorrected,
                                       unsigned *pending, unsigned *failure)
{
    static const char *keys[] = {"remap_corrected", "remap_uncorrected", "remap_pending", "remap_failure"};
    unsigned *outs[] = {corrected, uncorrected, pending, failure};
    BEGIN(gpu->number);
    for (int i = 0; i < 4; i++) {
        int code = put_uint(gpu, keys[i], outs[i]);
        if (code != NVML_SUCCESS)
            return code;
    }
    return NVML_SUCCESS;
}

GET_UINT(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
GET_UINT(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_max_generation")
GET_UINT(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
GET_UINT(nvmlDeviceGetMaxPcieLinkWidth, "pcie_max_width")
GET_UINT(nvmlDeviceGetPcieReplayCounter, "pcie_replays")

static int is_nvlink(unsigned field) { return (field >= 161 && field <= 165) || (field >= 206 && field <= 222); }

/* Counters of 64 bits: clocks held down, NVLink errors of both generations. */
static int is_long(unsigned field)
{
    return field == 74 || (field >= 161 && field <= 163) || (field >= 206 && field <= 222) ||
           (field >= 269 && field <= 271);
}

static int field_number(nvmlDevice_t gpu, const nvmlFieldValue_t *field, long long *out)
{
    char key[48];
    long long links = 0;
    if (is_nvlink(field->fieldId)) {
        find_number(gpu->number, "links", &links);
        if (field->scopeId >= links)
            return NVML_ERROR_NOT_SUPPORTED;
        snprintf(key, sizeof key, "field.%u.%u", field->fieldId, field->scopeId);
        if (find_text(gpu->number, key))
            return find_number(gpu->number, key, out);
    }
    snprintf(key, sizeof key, "field.%u", field->fieldId);
    return find_number(gpu->number, key, out);
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t *fields)
{
    BEGIN(gpu->number);
    for (int i = 0; i < count; i++) {
        long long number = 0;
        unsigned id = fields[i].fieldId;
        wait_field(gpu->number, id);
        fields[i].nvmlReturn = (unsigned)field_number(gpu, &fields[i], &number);
        /* As the real library does: the other bytes of the union are not all sign. */
        fields[i].value.ullVal = 0;
        if (id >= 193 && id <= 196) {
            fields[i].valueType = TYPE_SIGNED_INT;
            fields[i].value.siVal = (int)number;
        } else if (is_long(id)) {
            fields[i].valueType = TYPE_UNSIGNED_LONG_LONG;
            fields[i].value.ullVal = (unsigned long long)number;
        } else {
            fields[i].valueType = TYPE_UNSIGNED_INT;
            fields[i].value.uiVal = (unsigned)number;
        }
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t gpu, nvmlGpuFabricInfo_v2_t *out)
{
    unsigned state = 0;
    BEGIN(gpu->number);
    if (out->version != ((2u << 24) | sizeof *out))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int code = put_uint(gpu, "fabric_state", &state);
    out->state = (uint8_t)state;
    if (code == NVML_SUCCESS)
        code = put_uint(gpu, "fabric_status", &out->status);
    if (code == NVML_SUCCESS)
        code = put_uint(gpu, "fabric_health_mask", &out->healthMask);
    return code == NVML_SUCCESS ? put_uint(gpu, "fabric_clique_id", &out->cliqueId) : code;
}

/* `processes = 100:1048576 200:na`: pid and bytes, or no known memory. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t gpu, unsigned *count, nvmlProcessInfo_v3_t *out)
{
    nvmlProcessInfo_v3_t found[MAX_PROCESSES] = {0};
    unsigned number = 0, pid;
    char bytes[32];
    int read = 0;
    BEGIN(gpu->number);
    const char *text = find_text(gpu->number, "processes");
    if (!text)
        return NVML_ERROR_NOT_SUPPORTED;
    for (; number < MAX_PROCESSES && sscanf(text, " %u:%31s%n", &pid, bytes, &read) == 2; text += read, number++) {
        found[number].pid = pid;
        if (sscanf(bytes, "%llu", &found[number].usedGpuMemory) != 1)
            found[number].usedGpuMemory = ~0ull;
    }
    unsigned room = *count;
    *count = number;
    if (number > room || (number && !out))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    if (number)
        memcpy(out, found, number * sizeof found[0]);
    return NVML_SUCCESS;
}
