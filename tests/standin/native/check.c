/* Sizes and offsets of the state file's structs, for the Python mirror to compare with its own. */
#include "internal.h"

struct layout_entry {
    const char *name;
    unsigned value;
};

#define SIZE(type) {#type, (unsigned)sizeof(struct type)}
#define OFFSET(type, field) {#type "." #field, (unsigned)offsetof(struct type, field)}

NVML_EXPORT const struct layout_entry standin_layout[] = {
    SIZE(mig_profile),
    SIZE(compute_instance),
    SIZE(gpu_instance),
    SIZE(gpu),
    SIZE(event),
    SIZE(injection),
    SIZE(state),
    OFFSET(mig_profile, placement_starts),
    OFFSET(mig_profile, name),
    OFFSET(compute_instance, uuid),
    OFFSET(gpu_instance, compute_instances),
    OFFSET(gpu, ecc_mode),
    OFFSET(gpu, nvlink_states),
    OFFSET(gpu, fabric_newest),
    OFFSET(gpu, fabric_cluster_uuid),
    OFFSET(gpu, mig_capable),
    OFFSET(gpu, memory_total),
    OFFSET(gpu, supported_events),
    OFFSET(gpu, name),
    OFFSET(gpu, vbios_version),
    OFFSET(gpu, profiles),
    OFFSET(gpu, gpu_instances),
    OFFSET(event, data),
    OFFSET(injection, delay_ms),
    OFFSET(state, library_version),
    OFFSET(state, events),
    OFFSET(state, injections),
    OFFSET(state, gpus),
    {NULL, 0},
};
