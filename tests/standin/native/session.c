/* Library and system: init, shutdown, error texts, versions, enumeration. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "internal.h"

NVML_EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags) { return session_open(flags); }
NVML_EXPORT nvmlReturn_t nvmlInit_v2(void) { return session_open(0); }
NVML_EXPORT nvmlReturn_t nvmlInit(void) { return session_open(0); }

NVML_EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (state) {
        nvmlReturn_t failure = injected(__func__, NULL);
        if (failure) return failure;
    }
    return session_close();
}

NVML_EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const texts[] = {
        "Success",
        "Uninitialized",
        "Invalid Argument",
        "Not Supported",
        "Insufficient Permissions",
        "Already Initialized",
        "Not Found",
        "Insufficient Size",
        "Insufficient External Power",
        "Driver Not Loaded",
        "Timeout",
        "Interrupt Request Issue",
        "NVML Shared Library Not Found",
        "Function Not Found",
        "Corrupted infoROM",
        "GPU is lost",
        "GPU requires reset",
        "The operating system has blocked the request.",
        "RM has detected an NVML/RM version mismatch.",
        "In use by another client",
        "Insufficient Memory",
        "No data",
        "The requested vgpu operation is not available on target device, because ECC is enabled",
        "Insufficient Resources",
        "The requested frequency is not supported",
        "Argument version mismatch",
        "The requested functionality has been deprecated",
        "The system is not ready for the request",
        "No GPUs were found",
        "Invalid state",
    };
    return result >= 0 && result < (int)(sizeof texts / sizeof *texts) ? texts[result] : "Unknown Error";
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER_SESSION();
    return put_text(version, length, state->kernel_version);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    ENTER_SESSION();
    char text[96];
    snprintf(text, sizeof text, "%u.%s", state->cuda_version / 1000, state->library_version);
    return put_text(version, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER_SESSION();
    REQUIRE_ARGUMENT(version);
    *version = (int)state->cuda_version;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER_SESSION();
    REQUIRE_ARGUMENT(count);
    *count = visible_count;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    struct gpu *gpu = index < visible_count ? visible[index] : NULL;
    nvmlReturn_t failure = enter(__func__, gpu);
    if (failure) return failure;
    if (!gpu || !device) return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(void *)gpu;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

/* The GPU or MIG device with that UUID; gpu becomes the GPU it belongs to. */
static void *find_uuid(const char *uuid, struct gpu **gpu) {
    for (unsigned index = 0; index < visible_count; index++) {
        *gpu = visible[index];
        if (!strcmp((*gpu)->uuid, uuid)) return *gpu;
        for (unsigned i = 0; i < MAX_GPU_INSTANCES; i++) {
            struct gpu_instance *instance = &(*gpu)->gpu_instances[i];
            for (unsigned c = 0; instance->used && c < MAX_COMPUTE_INSTANCES; c++) {
                struct compute_instance *compute = &instance->compute_instances[c];
                if (compute->used && !strcmp(compute->uuid, uuid)) return compute;
            }
        }
    }
    *gpu = NULL;
    return NULL;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    struct gpu *gpu = NULL;
    void *found = state && uuid ? find_uuid(uuid, &gpu) : NULL;
    nvmlReturn_t failure = enter(__func__, gpu);
    if (failure) return failure;
    REQUIRE(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(found, NVML_ERROR_NOT_FOUND);
    *device = found;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    struct gpu *gpu = NULL;
    for (unsigned index = 0; bus_id && index < visible_count && !gpu; index++) {
        char wide[32], narrow[32];
        struct gpu *candidate = visible[index];
        snprintf(wide, sizeof wide, "%08X:%02X:%02X.0", candidate->pci_domain, candidate->pci_bus,
                 candidate->pci_device);
        snprintf(narrow, sizeof narrow, "%04X:%02X:%02X.0", candidate->pci_domain, candidate->pci_bus,
                 candidate->pci_device);
        if (!strcasecmp(bus_id, wide) || !strcasecmp(bus_id, narrow)) gpu = candidate;
    }
    nvmlReturn_t failure = enter(__func__, gpu);
    if (failure) return failure;
    REQUIRE(bus_id && device, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(gpu, NVML_ERROR_NOT_FOUND);
    *device = (nvmlDevice_t)(void *)gpu;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device) {
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
