/* SIMULATED NVML: starting, the system, the devices and who they are, answered from a file (see nvml_file.h).
 *
 * With the other files here this makes libnvidia-ml.so.1, compiled by the test run.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "nvml_calls.h"

#define MAX_GPUS 64

int nvml_initialized;
static struct gpu gpus[MAX_GPUS];
static unsigned gpu_count;

nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    long long count = 0, present;
    int code = begin_call(__func__, NODE);
    (void)flags;
    if (code != NVML_SUCCESS)
        return code;
    if (find_number(NODE, "count", &count) != NVML_SUCCESS || count < 0 || count > MAX_GPUS)
        return NVML_ERROR_UNKNOWN;
    gpu_count = 0;
    for (int number = 0; number < count; number++) {
        present = 1;
        find_number(number, "present", &present);
        if (present)
            gpus[gpu_count++].number = number;
    }
    nvml_initialized = 1;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlShutdown(void)
{
    nvml_initialized = 0;
    return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t code) { return error_text(code); }

GET_SYSTEM_TEXT(nvmlSystemGetDriverVersion, "driver_version")
GET_SYSTEM_TEXT(nvmlSystemGetNVMLVersion, "nvml_version")

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *out)
{
    long long number = 0;
    BEGIN(NODE);
    int code = find_number(NODE, "cuda_version", &number);
    *out = (int)number;
    return code;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *out)
{
    BEGIN(NODE);
    *out = gpu_count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    if (nvml_initialized && index >= gpu_count)
        return NVML_ERROR_INVALID_ARGUMENT;
    BEGIN(gpus[index].number);
    *out = &gpus[index];
    return NVML_SUCCESS;
}

nvmlDevice_t gpu_numbered(int number)
{
    for (unsigned i = 0; i < gpu_count; i++)
        if (gpus[i].number == number)
            return &gpus[i];
    return NULL;
}

static nvmlDevice_t by_text(const char *key, const char *text)
{
    for (unsigned i = 0; i < gpu_count; i++) {
        const char *own = find_text(gpus[i].number, key);
        if (own && strcasecmp(own, text) == 0)
            return &gpus[i];
    }
    return NULL;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *out)
{
    char full[32];
    unsigned domain, bus, device, function;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    snprintf(full, sizeof full, "%08X:%02X:%02X.%X", domain, bus, device, function);
    nvmlDevice_t gpu = by_text("pci_bus_id", full);
    BEGIN(gpu ? gpu->number : NODE);
    *out = gpu;
    return gpu ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    nvmlDevice_t gpu = by_text("uuid", uuid);
    BEGIN(gpu ? gpu->number : NODE);
    *out = gpu;
    return gpu ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

GET_TEXT(nvmlDeviceGetUUID, "uuid")
GET_TEXT(nvmlDeviceGetName, "name")
GET_TEXT(nvmlDeviceGetSerial, "serial")
GET_TEXT(nvmlDeviceGetVbiosVersion, "vbios")
GET_UINT(nvmlDeviceGetMinorNumber, "minor")

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *out)
{
    BEGIN(gpu->number);
    memset(out, 0, sizeof *out);
    int code = copy_text(gpu->number, "pci_bus_id", out->busId, sizeof out->busId);
    if (code == NVML_SUCCESS && sscanf(out->busId, "%x:%x:%x", &out->domain, &out->bus, &out->device) == 3)
        snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%04x:%02x:%02x.0", out->domain & 0xffff,
                 out->bus & 0xff, out->device & 0xff);
    return code;
}
