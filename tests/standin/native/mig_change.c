/* MIG, changing: the mode, creation and destruction of instances. */
#include <stdio.h>
#include <string.h>

#include "mig.h"

static int has_instances(const struct gpu *gpu) {
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++)
        if (gpu->gpu_instances[i].used) return 1;
    return 0;
}

/*
 * The call succeeds when the wish is noted; activation tells whether it took effect: Ampere needs a reset of the GPU, a
 * GPU with instances refuses. The function name with ":activation" injects a failure of the activation alone.
 */
NVML_EXPORT nvmlReturn_t nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, nvmlReturn_t *activation) {
    ENTER_GPU(device);
    REQUIRE(gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(mode <= 1 && activation, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = NVML_SUCCESS;
    state_lock();
    if (!mode && has_instances(gpu)) {
        *activation = result = NVML_ERROR_IN_USE;
    } else {
        gpu->mig_pending = mode;
        *activation = injected("nvmlDeviceSetMigMode:activation", gpu);
        if (!*activation && gpu->mig_toggles_without_reset) gpu->mig_current = mode;
        if (!*activation && gpu->mig_current != mode) *activation = NVML_ERROR_RESET_REQUIRED;
    }
    state_unlock();
    return result;
}

static unsigned slices_in_use(const struct gpu *gpu) {
    unsigned slices = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++)
        if (gpu->gpu_instances[i].used) slices += gpu->profiles[gpu->gpu_instances[i].profile_slot].slices;
    return slices;
}

/* GPU instance ids number the nodes of a binary tree over the memory slices: 0 the whole, 1 and 2 its halves, ... */
static unsigned instance_id(const struct gpu *gpu, unsigned start, unsigned size) {
    return gpu->mig_memory_slices / size - 1 + start / size;
}

/* Creates an instance at the wanted placement, or at the first that is free. The caller holds the lock. */
static nvmlReturn_t create_instance(struct gpu *gpu, unsigned id, const nvmlPlacement_t *wanted,
                                    nvmlGpuInstance_t *instance) {
    struct mig_profile *profile = gpu->mig_current ? profile_by_id(gpu, id) : NULL;
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(instances_of(gpu, profile) < profile->max_count, NVML_ERROR_INSUFFICIENT_RESOURCES);
    REQUIRE(slices_in_use(gpu) + profile->slices <= gpu->mig_slices, NVML_ERROR_INSUFFICIENT_RESOURCES);
    for (unsigned i = 0; i < profile->placement_count; i++) {
        unsigned start = profile->placement_starts[i], size = profile->placement_size;
        if (wanted && (wanted->start != start || wanted->size != size)) continue;
        if (!placement_is_free(gpu, start, size)) {
            if (wanted) return NVML_ERROR_INSUFFICIENT_RESOURCES;
            continue;
        }
        unsigned new_id = instance_id(gpu, start, size);
        struct gpu_instance *created = &gpu->gpu_instances[new_id];
        memset(created, 0, sizeof *created);
        created->id = new_id;
        created->profile_slot = (unsigned)(profile - gpu->profiles);
        created->start = start;
        created->size = size;
        created->used = 1;
        *instance = created;
        return NVML_SUCCESS;
    }
    return wanted ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_INSUFFICIENT_RESOURCES;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(instance);
    state_lock();
    nvmlReturn_t result = create_instance(gpu, id, NULL, instance);
    state_unlock();
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id,
                                                                  const nvmlPlacement_t *placement,
                                                                  nvmlGpuInstance_t *instance) {
    ENTER_GPU(device);
    REQUIRE(placement && instance, NVML_ERROR_INVALID_ARGUMENT);
    state_lock();
    nvmlReturn_t result = create_instance(gpu, id, placement, instance);
    state_unlock();
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceDestroy(nvmlGpuInstance_t handle) {
    ENTER_INSTANCE(handle);
    nvmlReturn_t result = NVML_SUCCESS;
    state_lock();
    for (unsigned c = 0; c < MAX_COMPUTE_INSTANCES; c++)
        if (instance->compute_instances[c].used) result = NVML_ERROR_IN_USE;
    if (!result) instance->used = 0;
    state_unlock();
    return result;
}

static unsigned compute_slices_in_use(const struct gpu_instance *instance) {
    unsigned slices = 0;
    for (unsigned c = 0; c < MAX_COMPUTE_INSTANCES; c++)
        if (instance->compute_instances[c].used) slices += instance->compute_instances[c].slices;
    return slices;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t handle, unsigned profile,
                                                              nvmlComputeInstance_t *created) {
    ENTER_INSTANCE(handle);
    REQUIRE_ARGUMENT(created);
    unsigned slices = compute_slices(gpu, instance, profile);
    REQUIRE(slices, NVML_ERROR_NOT_SUPPORTED);
    const struct mig_profile *whole = &gpu->profiles[instance->profile_slot];
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_RESOURCES;
    state_lock();
    unsigned start = compute_slices_in_use(instance);
    for (unsigned c = 0; result && start + slices <= whole->slices && c < MAX_COMPUTE_INSTANCES; c++) {
        struct compute_instance *compute = &instance->compute_instances[c];
        if (compute->used) continue;
        *compute = (struct compute_instance){
            .id = c,
            .profile = profile,
            .start = start,
            .slices = slices,
            .multiprocessors = whole->multiprocessors * slices / whole->slices,
        };
        /* A new UUID for every creation, as with the real driver. */
        snprintf(compute->uuid, sizeof compute->uuid, "MIG-%08x-%04x-5%03x-8000-%012x",
                 0xabc00000u + (unsigned)(gpu - state->gpus), instance->id, c, ++state->uuid_serial);
        compute->used = 1;
        *created = compute;
        result = NVML_SUCCESS;
    }
    state_unlock();
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlComputeInstanceDestroy(nvmlComputeInstance_t handle) {
    ENTER_COMPUTE(handle);
    state_lock();
    compute->used = 0;
    state_unlock();
    return NVML_SUCCESS;
}
