/* One GPU: identity, memory, modes, power. Functions that take MIG device handles too use ENTER_DEVICE. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* A function that copies one field of the GPU, NOT_SUPPORTED when the field says so. */
#define GETTER(name, enter_macro, field)                         \
    NVML_EXPORT nvmlReturn_t name(nvmlDevice_t device, unsigned *value) { \
        enter_macro(device);                                     \
        REQUIRE_ARGUMENT(value);                                 \
        REQUIRE_SUPPORTED(gpu->field);                           \
        *value = gpu->field;                                     \
        return NVML_SUCCESS;                                     \
    }

GETTER(nvmlDeviceGetMinorNumber, ENTER_GPU, minor)
GETTER(nvmlDeviceGetBrand, ENTER_DEVICE, brand)
GETTER(nvmlDeviceGetArchitecture, ENTER_DEVICE, architecture)
GETTER(nvmlDeviceGetModuleId, ENTER_GPU, module_id)
GETTER(nvmlDeviceGetNumaNodeId, ENTER_GPU, memory_numa_node)
GETTER(nvmlDeviceGetVirtualizationMode, ENTER_GPU, virtualization_mode)
GETTER(nvmlDeviceGetComputeMode, ENTER_GPU, compute_mode)
GETTER(nvmlDeviceGetPersistenceMode, ENTER_GPU, persistence_mode)
GETTER(nvmlDeviceGetPowerUsage, ENTER_GPU, power_usage_mw)
GETTER(nvmlDeviceGetEnforcedPowerLimit, ENTER_GPU, power_limit_mw)
GETTER(nvmlDeviceGetPowerManagementLimit, ENTER_GPU, power_limit_mw)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(index);
    *index = index_of(gpu);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    ENTER_DEVICE(device);
    const struct compute_instance *compute = mig_of(device);
    if (!compute) return put_text(name, length, gpu->name);
    const struct mig_profile *profile = &gpu->profiles[parent_of(compute)->profile_slot];
    char text[160], part[16] = "";
    if (compute->slices < profile->slices) snprintf(part, sizeof part, "%uc.", compute->slices);
    snprintf(text, sizeof text, "%s MIG %s%s", gpu->name, part, profile->name);
    return put_text(name, length, text);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ENTER_DEVICE(device);
    const struct compute_instance *compute = mig_of(device);
    return put_text(uuid, length, compute ? compute->uuid : gpu->uuid);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned length) {
    ENTER_DEVICE(device);
    return put_text(serial, length, gpu->serial);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetBoardPartNumber(nvmlDevice_t device, char *part, unsigned length) {
    ENTER_GPU(device);
    return put_text(part, length, gpu->board_part_number);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t device, char *version, unsigned length) {
    ENTER_GPU(device);
    return put_text(version, length, gpu->vbios_version);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE(device);
    REQUIRE(major && minor, NVML_ERROR_INVALID_ARGUMENT);
    *major = (int)gpu->compute_major;
    *minor = (int)gpu->compute_minor;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    ENTER_DEVICE(device);
    REQUIRE_ARGUMENT(pci);
    memset(pci, 0, sizeof *pci);
    pci->domain = gpu->pci_domain;
    pci->bus = gpu->pci_bus;
    pci->device = gpu->pci_device;
    pci->pciDeviceId = gpu->pci_device_id << 16 | 0x10de;
    pci->pciSubSystemId = gpu->pci_subsystem_id;
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->pci_domain & 0xffff,
             gpu->pci_bus & 0xff, gpu->pci_device & 0xff);
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
    ENTER_GPU(device);
    REQUIRE_VERSION(pci, nvmlPciInfoExt_v1_t, 1);
    pci->domain = gpu->pci_domain;
    pci->bus = gpu->pci_bus;
    pci->device = gpu->pci_device;
    pci->pciDeviceId = gpu->pci_device_id << 16 | 0x10de;
    pci->pciSubSystemId = gpu->pci_subsystem_id;
    pci->baseClass = 3; /* display controller */
    pci->subClass = 2;  /* 3D controller */
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
    return NVML_SUCCESS;
}

/* A MIG device owns its profile's memory. */
static unsigned long long total_memory(const struct gpu *gpu, const struct compute_instance *compute) {
    if (!compute) return gpu->memory_total;
    return (unsigned long long)gpu->profiles[parent_of(compute)->profile_slot].memory_mib << 20;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    ENTER_DEVICE(device);
    REQUIRE_ARGUMENT(memory);
    REQUIRE(gpu->memory_total, NVML_ERROR_NOT_SUPPORTED);
    const struct compute_instance *compute = mig_of(device);
    memory->total = total_memory(gpu, compute);
    memory->used = compute ? 0 : gpu->memory_used + gpu->memory_reserved; /* version 1 counts reserved memory as used */
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
    ENTER_DEVICE(device);
    REQUIRE_VERSION(memory, nvmlMemory_v2_t, 2);
    REQUIRE(gpu->memory_total, NVML_ERROR_NOT_SUPPORTED);
    const struct compute_instance *compute = mig_of(device);
    memory->total = total_memory(gpu, compute);
    memory->reserved = compute ? 0 : gpu->memory_reserved;
    memory->used = compute ? 0 : gpu->memory_used;
    memory->free = memory->total - memory->used - memory->reserved;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlVersionedValue_t *mode) {
    ENTER_DEVICE(device);
    REQUIRE_VERSION(mode, nvmlVersionedValue_t, 1);
    REQUIRE_SUPPORTED(gpu->addressing_mode);
    mode->value = gpu->addressing_mode;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_GPU(device);
    REQUIRE(current && pending, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE_SUPPORTED(gpu->ecc_mode);
    *current = gpu->ecc_mode;
    *pending = gpu->ecc_pending_mode;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned mode) {
    ENTER_GPU(device);
    REQUIRE_SUPPORTED(gpu->compute_mode);
    REQUIRE(mode <= 3 && mode != 1, NVML_ERROR_INVALID_ARGUMENT); /* 1, exclusive thread, was removed */
    state_lock();
    gpu->compute_mode = mode;
    state_unlock();
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceSetPersistenceMode(nvmlDevice_t device, unsigned mode) {
    ENTER_GPU(device);
    REQUIRE(mode <= 1, NVML_ERROR_INVALID_ARGUMENT);
    state_lock();
    gpu->persistence_mode = mode;
    state_unlock();
    return NVML_SUCCESS;
}
