/* What reading and changing MIG share. */
#ifndef STANDIN_MIG_H
#define STANDIN_MIG_H

#include "internal.h"

enum { GPU_INSTANCE_PROFILE_COUNT = 18, COMPUTE_INSTANCE_PROFILE_COUNT = 9 };

struct mig_profile *profile_by_index(struct gpu *gpu, unsigned index);
struct mig_profile *profile_by_id(struct gpu *gpu, unsigned id);

/* Is the range of memory slices free? */
int placement_is_free(const struct gpu *gpu, unsigned start, unsigned size);

/* Instances of the profile that exist. */
unsigned instances_of(const struct gpu *gpu, const struct mig_profile *profile);

/* Compute slices of a compute-instance profile, 0 when the GPU instance does not offer it. */
unsigned compute_slices(const struct gpu *gpu, const struct gpu_instance *instance, unsigned profile);

/* Starts a function that takes a GPU instance: defines instance and gpu, or returns. */
#define ENTER_INSTANCE(handle)                                            \
    struct gpu_instance *instance = instance_of(handle);                  \
    struct gpu *gpu = instance ? gpu_of_instance(instance) : NULL;        \
    do {                                                                  \
        nvmlReturn_t failure = enter(__func__, gpu);                      \
        if (failure) return failure;                                      \
        if (!instance) return NVML_ERROR_INVALID_ARGUMENT;                \
    } while (0)

/* The same for a compute instance. */
#define ENTER_COMPUTE(handle)                                             \
    struct compute_instance *compute = compute_of(handle);                \
    struct gpu *gpu = compute ? gpu_of_instance(compute) : NULL;          \
    do {                                                                  \
        nvmlReturn_t failure = enter(__func__, gpu);                      \
        if (failure) return failure;                                      \
        if (!compute) return NVML_ERROR_INVALID_ARGUMENT;                 \
    } while (0)

#endif
