/* MIG, reading: mode, existing devices, profiles and placements. */
#include <stdio.h>
#include <string.h>

#include "mig.h"

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_GPU(device);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
    *current = gpu->mig_current;
    *pending = gpu->mig_pending;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(count);
    *count = gpu->mig_capable ? gpu->mig_max_devices : 0;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    ENTER_DEVICE(device);
    REQUIRE_ARGUMENT(is_mig);
    *is_mig = mig_of(device) != NULL;
    return NVML_SUCCESS;
}

/* Devices are numbered over all instances in order of their ids. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *mig) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(mig);
    REQUIRE(gpu->mig_capable, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(index < gpu->mig_max_devices, NVML_ERROR_INVALID_ARGUMENT);
    unsigned seen = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        struct gpu_instance *instance = &gpu->gpu_instances[i];
        for (unsigned c = 0; instance->used && c < MAX_COMPUTE_INSTANCES; c++) {
            if (!instance->compute_instances[c].used || seen++ != index) continue;
            *mig = (nvmlDevice_t)(void *)&instance->compute_instances[c];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
    ENTER_DEVICE(device);
    REQUIRE(mig_of(device) && parent, NVML_ERROR_INVALID_ARGUMENT);
    *parent = (nvmlDevice_t)(void *)gpu;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    ENTER_DEVICE(device);
    REQUIRE(mig_of(device) && id, NVML_ERROR_INVALID_ARGUMENT);
    *id = parent_of(mig_of(device))->id;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    ENTER_DEVICE(device);
    REQUIRE(mig_of(device) && id, NVML_ERROR_INVALID_ARGUMENT);
    *id = mig_of(device)->id;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    ENTER_DEVICE(device);
    REQUIRE_ARGUMENT(attributes);
    const struct compute_instance *compute = mig_of(device);
    REQUIRE(compute, NVML_ERROR_NOT_SUPPORTED);
    const struct mig_profile *profile = &gpu->profiles[parent_of(compute)->profile_slot];
    *attributes = (nvmlDeviceAttributes_t){
        .multiprocessorCount = compute->multiprocessors,
        .sharedCopyEngineCount = profile->copy_engines,
        .sharedDecoderCount = profile->decoders,
        .sharedEncoderCount = profile->encoders,
        .sharedJpegCount = profile->jpeg_engines,
        .sharedOfaCount = profile->ofa_engines,
        .gpuInstanceSliceCount = profile->slices,
        .computeInstanceSliceCount = compute->slices,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

struct mig_profile *profile_by_index(struct gpu *gpu, unsigned index) {
    for (unsigned i = 0; gpu->mig_capable && i < gpu->profile_count; i++)
        if (gpu->profiles[i].index == index) return &gpu->profiles[i];
    return NULL;
}

struct mig_profile *profile_by_id(struct gpu *gpu, unsigned id) {
    for (unsigned i = 0; gpu->mig_capable && i < gpu->profile_count; i++)
        if (gpu->profiles[i].id == id) return &gpu->profiles[i];
    return NULL;
}

int placement_is_free(const struct gpu *gpu, unsigned start, unsigned size) {
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        const struct gpu_instance *instance = &gpu->gpu_instances[i];
        if (instance->used && start < instance->start + instance->size && instance->start < start + size) return 0;
    }
    return 1;
}

unsigned instances_of(const struct gpu *gpu, const struct mig_profile *profile) {
    unsigned count = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++)
        if (gpu->gpu_instances[i].used && &gpu->profiles[gpu->gpu_instances[i].profile_slot] == profile) count++;
    return count;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned index,
                                                             nvmlGpuInstanceProfileInfo_t *info) {
    ENTER_GPU(device);
    REQUIRE(info && index < GPU_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    const struct mig_profile *profile = profile_by_index(gpu, index);
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlGpuInstanceProfileInfo_t){
        .id = profile->id,
        .isP2pSupported = profile->p2p,
        .sliceCount = profile->slices,
        .instanceCount = profile->max_count,
        .multiprocessorCount = profile->multiprocessors,
        .copyEngineCount = profile->copy_engines,
        .decoderCount = profile->decoders,
        .encoderCount = profile->encoders,
        .jpegCount = profile->jpeg_engines,
        .ofaCount = profile->ofa_engines,
        .memorySizeMB = profile->memory_mib,
    };
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned index,
                                                              nvmlGpuInstanceProfileInfo_v2_t *info) {
    ENTER_GPU(device);
    REQUIRE(info && index < GPU_INSTANCE_PROFILE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE_VERSION(info, nvmlGpuInstanceProfileInfo_v2_t, 2);
    const struct mig_profile *profile = profile_by_index(gpu, index);
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    *info = (nvmlGpuInstanceProfileInfo_v2_t){
        .version = info->version,
        .id = profile->id,
        .isP2pSupported = profile->p2p,
        .sliceCount = profile->slices,
        .instanceCount = profile->max_count,
        .multiprocessorCount = profile->multiprocessors,
        .copyEngineCount = profile->copy_engines,
        .decoderCount = profile->decoders,
        .encoderCount = profile->encoders,
        .jpegCount = profile->jpeg_engines,
        .ofaCount = profile->ofa_engines,
        .memorySizeMB = profile->memory_mib,
    };
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id,
                                                                       nvmlPlacement_t *placements, unsigned *count) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(count);
    const struct mig_profile *profile = profile_by_id(gpu, id);
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    unsigned room = *count;
    *count = profile->placement_count;
    if (!placements) return NVML_SUCCESS;
    REQUIRE(room >= profile->placement_count, NVML_ERROR_INSUFFICIENT_SIZE);
    for (unsigned i = 0; i < profile->placement_count; i++)
        placements[i] = (nvmlPlacement_t){profile->placement_starts[i], profile->placement_size};
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id, unsigned *count) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(count);
    const struct mig_profile *profile = gpu->mig_current ? profile_by_id(gpu, id) : NULL;
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    unsigned free_placements = 0, left = profile->max_count - instances_of(gpu, profile);
    for (unsigned i = 0; i < profile->placement_count; i++)
        free_placements += (unsigned)placement_is_free(gpu, profile->placement_starts[i], profile->placement_size);
    *count = free_placements < left ? free_placements : left;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                                                   unsigned *count) {
    ENTER_GPU(device);
    REQUIRE(instances && count, NVML_ERROR_INVALID_ARGUMENT);
    const struct mig_profile *profile = gpu->mig_current ? profile_by_id(gpu, id) : NULL;
    REQUIRE(profile, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
        struct gpu_instance *instance = &gpu->gpu_instances[i];
        if (instance->used && &gpu->profiles[instance->profile_slot] == profile) instances[(*count)++] = instance;
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(instance);
    REQUIRE(gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(id < MAX_GPU_INSTANCES && gpu->gpu_instances[id].used, NVML_ERROR_NOT_FOUND);
    *instance = &gpu->gpu_instances[id];
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *info) {
    ENTER_INSTANCE(handle);
    REQUIRE_ARGUMENT(info);
    *info = (nvmlGpuInstanceInfo_t){
        .device = (nvmlDevice_t)(void *)gpu,
        .id = instance->id,
        .profileId = gpu->profiles[instance->profile_slot].id,
        .placement = {instance->start, instance->size},
    };
    return NVML_SUCCESS;
}

/* Compute instances may take the whole GPU instance or at most half of it, rounded up. */
unsigned compute_slices(const struct gpu *gpu, const struct gpu_instance *instance, unsigned profile) {
    static const unsigned slices[] = {1, 2, 3, 4, 7, 8, 6}; /* then 1_SLICE_REV1 and others, never offered here */
    unsigned whole = gpu->profiles[instance->profile_slot].slices;
    if (profile >= sizeof slices / sizeof *slices) return 0;
    unsigned part = slices[profile];
    return part == whole || (part < whole && part * 2 <= whole + 1) ? part : 0;
}

static nvmlComputeInstanceProfileInfo_t compute_profile(const struct gpu *gpu, const struct gpu_instance *instance,
                                                        unsigned profile, unsigned slices) {
    const struct mig_profile *whole = &gpu->profiles[instance->profile_slot];
    return (nvmlComputeInstanceProfileInfo_t){
        .id = profile, /* here id and index are the same number */
        .sliceCount = slices,
        .instanceCount = whole->slices / slices,
        .multiprocessorCount = whole->multiprocessors * slices / whole->slices,
        .sharedCopyEngineCount = whole->copy_engines,
        .sharedDecoderCount = whole->decoders,
        .sharedEncoderCount = whole->encoders,
        .sharedJpegCount = whole->jpeg_engines,
        .sharedOfaCount = whole->ofa_engines,
    };
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t handle, unsigned profile,
                                                                      unsigned engine_profile,
                                                                      nvmlComputeInstanceProfileInfo_t *info) {
    ENTER_INSTANCE(handle);
    REQUIRE(info && profile < COMPUTE_INSTANCE_PROFILE_COUNT && !engine_profile, NVML_ERROR_INVALID_ARGUMENT);
    unsigned slices = compute_slices(gpu, instance, profile);
    REQUIRE(slices, NVML_ERROR_NOT_SUPPORTED);
    *info = compute_profile(gpu, instance, profile, slices);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t handle, unsigned profile,
                                                                       unsigned engine_profile,
                                                                       nvmlComputeInstanceProfileInfo_v2_t *info) {
    ENTER_INSTANCE(handle);
    REQUIRE(info && profile < COMPUTE_INSTANCE_PROFILE_COUNT && !engine_profile, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE_VERSION(info, nvmlComputeInstanceProfileInfo_v2_t, 2);
    unsigned slices = compute_slices(gpu, instance, profile);
    REQUIRE(slices, NVML_ERROR_NOT_SUPPORTED);
    const struct mig_profile *whole = &gpu->profiles[instance->profile_slot];
    info->info = compute_profile(gpu, instance, profile, slices);
    if (slices == whole->slices)
        snprintf(info->name, sizeof info->name, "MIG %s", whole->name);
    else
        snprintf(info->name, sizeof info->name, "MIG %uc.%s", slices, whole->name);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t handle, unsigned profile,
                                                            nvmlComputeInstance_t *instances, unsigned *count) {
    ENTER_INSTANCE(handle);
    REQUIRE(instances && count, NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    for (unsigned c = 0; c < MAX_COMPUTE_INSTANCES; c++) {
        struct compute_instance *compute = &instance->compute_instances[c];
        if (compute->used && compute->profile == profile) instances[(*count)++] = compute;
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t handle, unsigned id,
                                                               nvmlComputeInstance_t *compute) {
    ENTER_INSTANCE(handle);
    REQUIRE_ARGUMENT(compute);
    REQUIRE(id < MAX_COMPUTE_INSTANCES && instance->compute_instances[id].used, NVML_ERROR_NOT_FOUND);
    *compute = &instance->compute_instances[id];
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *info) {
    ENTER_COMPUTE(handle);
    REQUIRE_ARGUMENT(info);
    *info = (nvmlComputeInstanceInfo_t){
        .device = (nvmlDevice_t)(void *)compute,
        .gpuInstance = parent_of(compute),
        .id = compute->id,
        .profileId = compute->profile,
        .placement = {compute->start, compute->slices},
    };
    return NVML_SUCCESS;
}
