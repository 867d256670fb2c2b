/* SIMULATED NVML: structures of the public NVML API as nvidia-ml-py declares them, and what the calls share. */
#ifndef NVML_CALLS_H
#define NVML_CALLS_H

#include <stdint.h>

#include "nvml_file.h"

typedef int nvmlReturn_t;
typedef struct gpu {
    int number;
} *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned fieldId, scopeId;
    int64_t timestamp, latencyUsec;
    unsigned valueType, nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        unsigned long long ullVal;
        int siVal;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned version;
    uint8_t clusterUuid[16];
    unsigned status, cliqueId;
    uint8_t state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_v3_t;

typedef struct {
    unsigned version, sensor;
    int temperature;
} nvmlTemperature_v1_t;

typedef struct {
    unsigned version;
    int margin;
} nvmlMarginTemperature_v1_t;

typedef struct {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long l2, sm, pcie, mcu, other;
    unsigned threshold_exceeded;
} nvmlEccSramErrorStatus_v1_t;

typedef struct {
    unsigned max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

typedef struct {
    unsigned version, channel_pending, tpc_pending;
} nvmlRepairStatus_v1_t;

typedef struct event_set {
    unsigned long long types;
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} nvmlEventData_t;

enum { TYPE_UNSIGNED_INT = 1, TYPE_UNSIGNED_LONG_LONG = 3, TYPE_SIGNED_INT = 5 };

extern int nvml_initialized;
/* The device with this number in the file, NULL if there is none. */
nvmlDevice_t gpu_numbered(int number);

#define BEGIN(gpu)                                                                                                    \
    do {                                                                                                              \
        int begun = nvml_initialized ? begin_call(__func__, (gpu)) : NVML_ERROR_UNINITIALIZED;                             \
        if (begun != NVML_SUCCESS)                                                                                    \
            return begun;                                                                                             \
    } while (0)

static inline int put_uint(nvmlDevice_t gpu, const char *key, unsigned *out)
{
    long long number = 0;
    int code = find_number(gpu->number, key, &number);
    if (code == NVML_SUCCESS)
        *out = (unsigned)number;
    return code;
}

static inline int put_ulonglong(nvmlDevice_t gpu, const char *key, unsigned long long *out)
{
    long long number = 0;
    int code = find_number(gpu->number, key, &number);
    if (code == NVML_SUCCESS)
        *out = (unsigned long long)number;
    return code;
}

#define GET_UINT(function, key)                                                                                       \
    nvmlReturn_t function(nvmlDevice_t gpu, unsigned *out)                                                            \
    {                                                                                                                 \
        BEGIN(gpu->number);                                                                                           \
        return put_uint(gpu, key, out);                                                                               \
    }
#define GET_TEXT(function, key)                                                                                       \
    nvmlReturn_t function(nvmlDevice_t gpu, char *out, unsigned size)                                                 \
    {                                                                                                                 \
        BEGIN(gpu->number);                                                                                           \
        return copy_text(gpu->number, key, out, size);                                                                \
    }
#define GET_SYSTEM_TEXT(function, key)                                                                                \
    nvmlReturn_t function(char *out, unsigned size)                                                                   \
    {                                                                                                                 \
        BEGIN(NODE);                                                                                                  \
        return copy_text(NODE, key, out, size);                                                                       \
    }

#endif
