/* SIMULATED NVML: how two devices reach each other, answered from a file (see nvml_file.h). */
#include <stdio.h>

#include "nvml_calls.h"

#define BEGIN_PAIR(gpu, peer)                                                                                         \
    do {                                                                                                              \
        BEGIN((gpu)->number);                                                                                         \
        int begun_peer = begin_peer(__func__, (peer)->number);                                                        \
        if (begun_peer != NVML_SUCCESS)                                                                               \
            return begun_peer;                                                                                        \
    } while (0)

/* `KEY.PEER` of the first device, else its `KEY`. */
static int put_for_pair(nvmlDevice_t gpu, nvmlDevice_t peer, const char *key, unsigned *out)
{
    char full[48];
    snprintf(full, sizeof full, "%s.%d", key, peer->number);
    return put_uint(gpu, find_text(gpu->number, full) ? full : key, out);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t gpu, nvmlDevice_t peer, unsigned capability, unsigned *out)
{
    char key[32];
    BEGIN_PAIR(gpu, peer);
    snprintf(key, sizeof key, "p2p.%u", capability);
    return put_for_pair(gpu, peer, key, out);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t gpu, nvmlDevice_t peer, unsigned *out)
{
    BEGIN_PAIR(gpu, peer);
    return put_for_pair(gpu, peer, "topology", out);
}
