/* SIMULATED NVML: event sets. Events are those of the file's `events` that have not been handed out yet. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "nvml_calls.h"

#define LOOK_EVERY_MS 5

static struct event_set the_set;
static unsigned long long registered[64];
static int handed_out;

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *out)
{
    BEGIN(NODE);
    *out = &the_set;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
    BEGIN(NODE);
    (void)set;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t gpu, unsigned long long *out)
{
    BEGIN(gpu->number);
    return put_ulonglong(gpu, "event_types", out);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t gpu, unsigned long long types, nvmlEventSet_t set)
{
    unsigned long long supported = 0;
    BEGIN(gpu->number);
    int code = put_ulonglong(gpu, "event_types", &supported);
    if (code != NVML_SUCCESS)
        return code;
    if (types & ~supported)
        return NVML_ERROR_NOT_SUPPORTED;
    registered[gpu->number] = types;
    set->types |= types;
    return NVML_SUCCESS;
}

/* The next event that somebody registered for. */
static int next_event(nvmlEventData_t *out)
{
    int gpu, used, place = 0;
    unsigned long long type, data;
    const char *text = find_text(NODE, "events");
    for (; text && sscanf(text, " %d:%llu:%llu%n", &gpu, &type, &data, &used) == 3; text += used, place++) {
        if (place < handed_out)
            continue;
        handed_out = place + 1;
        if (!gpu_numbered(gpu) || !(registered[gpu] & type))
            continue;
        memset(out, 0, sizeof *out);
        out->device = gpu_numbered(gpu);
        out->type = type;
        out->data = data;
        return 1;
    }
    return 0;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned timeout_ms)
{
    const struct timespec pause = {0, LOOK_EVERY_MS * 1000000};
    (void)set;
    for (unsigned waited_ms = 0;; waited_ms += LOOK_EVERY_MS) {
        BEGIN(NODE);
        if (next_event(out))
            return NVML_SUCCESS;
        if (waited_ms >= timeout_ms)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
