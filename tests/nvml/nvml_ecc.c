/* SIMULATED NVML: ECC by location, repairs, MIG and the clock set for applications, answered from a file. */
#include <stdio.h>
#include <string.h>

#include "nvml_calls.h"

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t gpu, unsigned type, unsigned counter, unsigned location,
                                             unsigned long long *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "ecc.%u.%u.%u", type, counter, location);
    return put_ulonglong(gpu, key, out);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending)
{
    BEGIN(gpu->number);
    int code = put_uint(gpu, "mig_current", current);
    return code == NVML_SUCCESS ? put_uint(gpu, "mig_pending", pending) : code;
}

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t gpu, nvmlEccSramErrorStatus_v1_t *out)
{
    BEGIN(gpu->number);
    if (out->version != ((1u << 24) | sizeof *out))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int code = put_ulonglong(gpu, "sram.parity", &out->aggregate_parity);
    if (code == NVML_SUCCESS)
        code = put_ulonglong(gpu, "sram.secded", &out->aggregate_secded);
    return code == NVML_SUCCESS ? put_uint(gpu, "sram.exceeded", &out->threshold_exceeded) : code;
}

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t gpu, nvmlRowRemapperHistogramValues_t *out)
{
    static const char *keys[] = {"max", "high", "partial", "low", "none"};
    unsigned *outs[] = {&out->max, &out->high, &out->partial, &out->low, &out->none};
    char key[32];
    BEGIN(gpu->number);
    for (int i = 0; i < 5; i++) {
        snprintf(key, sizeof key, "histogram.%s", keys[i]);
        int code = put_uint(gpu, key, outs[i]);
        if (code != NVML_SUCCESS)
            return code;
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetRepairStatus(nvmlDevice_t gpu, nvmlRepairStatus_v1_t *out)
{
    BEGIN(gpu->number);
    if (out->version != ((1u << 24) | sizeof *out))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    int code = put_uint(gpu, "channel_repair_pending", &out->channel_pending);
    return code == NVML_SUCCESS ? put_uint(gpu, "tpc_repair_pending", &out->tpc_pending) : code;
}

nvmlReturn_t nvmlDeviceGetApplicationsClock(nvmlDevice_t gpu, unsigned clock, unsigned *out)
{
    char key[32];
    BEGIN(gpu->number);
    snprintf(key, sizeof key, "app_clock.%u", clock);
    return put_uint(gpu, key, out);
}

nvmlReturn_t nvmlDeviceGetClock(nvmlDevice_t gpu, unsigned clock, unsigned id, unsigned *out)
{
    char key[32];
    BEGIN(gpu->number);
    if (id != 1) /* NVML_CLOCK_ID_APP_CLOCK_TARGET is the only one here */
        return NVML_ERROR_NOT_SUPPORTED;
    snprintf(key, sizeof key, "app_clock.%u", clock);
    return put_uint(gpu, key, out);
}
