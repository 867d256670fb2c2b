/* SIMULATED NVML: where libnvidia-ml.c gets its values, latencies and faults from.
 *
 * The file named by NODEGATE_TEST_NVML holds `key = value` lines (# starts a comment) and is read again whenever it
 * changes, so that a test can inject a fault into a running process:
 *
 *   count = 8                          GPUs numbered 0..7; gpu3.present = 0 hides one at the next nvmlInit
 *   gpu.margin = 50                    value of every GPU; gpu3.margin = 20 of one; a missing key is Not Supported
 *   gpu3.margin = GPU_IS_LOST          an NVML error instead of a value
 *   gpu.field.165 = 1                  field value; gpu3.field.165.7 = 0 for one scope (NVLink)
 *   gpu.p2p.2 = 0                      P2P status of a capability with every peer; gpu3.p2p.2.5 = 4 with GPU 5
 *   gpu.topology = 30                  common ancestor with every peer; gpu3.topology.5 = 50 with GPU 5
 *   gpu.sram.parity = 1                a member of the SRAM error status (parity, secded, exceeded)
 *   gpu.histogram.none = 2             a member of the row remapper's histogram (max, high, partial, low, none)
 *   gpu.event_types = 65439            types of events that a GPU supports
 *   events = 3:8:79 5:32768:1          events so far, GPU:type:data, oldest first: append to raise one
 *   us.nvmlDeviceGetPowerUsage = 1884  latency of a call in microseconds; gpu3.us.NAME for one GPU
 *   us.field.161 = 430                 latency of one field value, on top of its call's; a recording of a real
 *                                      GPU is played back by naming all its calls (nvml_lib.WARM_LATENCIES_US)
 *   fault.nvmlInitWithFlags = hang     fault of a call; gpu3.fault = hang for every call of one GPU,
 *                                      gpu3.fault.NAME for one call of one GPU (before gpu3.fault); `none` = no fault
 *
 * Faults: hang (until killed), abort, segv, noise (text on stdout, then the call goes on), or an NVML error name.
 */
#ifndef NVML_FILE_H
#define NVML_FILE_H

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
};

/* No particular GPU. */
#define NODE (-1)

/* Reads the file again if it has changed, waits the call's latency, then acts out its fault. */
int begin_call(const char *name, int gpu);
/* Acts out the fault of the second GPU of a call about two. */
int begin_peer(const char *name, int gpu);
/* Waits the latency of one field value. */
void wait_field(int gpu, unsigned field);
/* `gpuN.key`, else `gpu.key`, else (for NODE) `key`; NULL if there is none. */
const char *find_text(int gpu, const char *key);
/* A number, or the error that stands in its place; a missing key is Not Supported. */
int find_number(int gpu, const char *key, long long *out);
/* A string, likewise. */
int copy_text(int gpu, const char *key, char *out, unsigned size);
/* The text of an NVML error code. */
const char *error_text(int code);

#endif
