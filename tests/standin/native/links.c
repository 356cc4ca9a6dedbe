/* NVLink, fabric registration and topology. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { DEVICE_TYPE_GPU = 0, DEVICE_TYPE_SWITCH = 2 };
enum { FIELD_NVLINK_SPEED_MBPS = 90, FIELD_NVLINK_COUNT = 91 };
enum { VALUE_TYPE_UNSIGNED_INT = 1 };
enum { TOPOLOGY_SAME = 0, TOPOLOGY_NODE = 40, TOPOLOGY_SYSTEM = 50 };
enum { P2P_CAPS_INDEX_NVLINK = 2, P2P_OK = 0, P2P_NOT_SUPPORTED = 5 };

#define REQUIRE_LINK(link)                                         \
    REQUIRE(gpu->nvlink_count, NVML_ERROR_NOT_SUPPORTED);          \
    REQUIRE((link) < gpu->nvlink_count, NVML_ERROR_INVALID_ARGUMENT)

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(active);
    REQUIRE_LINK(link);
    *active = gpu->mig_current ? 0 : gpu->nvlink_states[link]; /* links are down in MIG mode */
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned *version) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(version);
    REQUIRE_LINK(link);
    *version = gpu->nvlink_version;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(type);
    REQUIRE_LINK(link);
    *type = gpu->nvlink_to_switch ? DEVICE_TYPE_SWITCH : DEVICE_TYPE_GPU;
    return NVML_SUCCESS;
}

/* Without switches the links go to the neighbouring GPU; a switch has no address. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, nvmlPciInfo_t *pci) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(pci);
    REQUIRE_LINK(link);
    memset(pci, 0, sizeof *pci);
    if (gpu->nvlink_to_switch) {
        pci->domain = 0xffffffffu;
        pci->bus = pci->device = 0xff;
        strcpy(pci->busId, "FFFFFFFF:FF:FF.0");
        return NVML_SUCCESS;
    }
    unsigned index = index_of(gpu), peer = index ^ 1u;
    REQUIRE(peer < visible_count, NVML_ERROR_NOT_SUPPORTED);
    pci->domain = visible[peer]->pci_domain;
    pci->bus = visible[peer]->pci_bus;
    pci->device = visible[peer]->pci_device;
    snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
    ENTER_GPU(device);
    REQUIRE(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        nvmlFieldValue_t *value = &values[i];
        value->nvmlReturn = NVML_SUCCESS;
        value->valueType = VALUE_TYPE_UNSIGNED_INT;
        value->value.ullVal = 0;
        if (gpu->nvlink_count && value->fieldId == FIELD_NVLINK_COUNT)
            value->value.uiVal = gpu->nvlink_count;
        else if (gpu->nvlink_count && value->fieldId == FIELD_NVLINK_SPEED_MBPS)
            value->value.uiVal = gpu->nvlink_speed_mbps;
        else
            value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    }
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(info);
    REQUIRE_SUPPORTED(gpu->fabric_state);
    memcpy(info->clusterUuid, gpu->fabric_cluster_uuid, sizeof info->clusterUuid);
    info->status = (nvmlReturn_t)gpu->fabric_status;
    info->cliqueId = gpu->fabric_clique_id;
    info->state = (unsigned char)gpu->fabric_state;
    return NVML_SUCCESS;
}

/* One function for versions 2 and 3: the caller's version tells which struct it passes. */
NVML_EXPORT nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v3_t *info) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(info);
    REQUIRE(gpu->fabric_newest >= 2, NVML_ERROR_FUNCTION_NOT_FOUND);
    int third = info->version == STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3) && gpu->fabric_newest >= 3;
    REQUIRE(third || info->version == STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE_SUPPORTED(gpu->fabric_state);
    memcpy(info->clusterUuid, gpu->fabric_cluster_uuid, sizeof info->clusterUuid);
    info->status = (nvmlReturn_t)gpu->fabric_status;
    info->cliqueId = gpu->fabric_clique_id;
    info->state = (unsigned char)gpu->fabric_state;
    info->healthMask = gpu->fabric_health_mask;
    if (third) info->healthSummary = (unsigned char)gpu->fabric_health_summary;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t other, unsigned *level) {
    ENTER_GPU(device);
    const struct gpu *peer = gpu_of(other);
    REQUIRE(peer && level, NVML_ERROR_INVALID_ARGUMENT);
    /* Bus numbers from 0x80 belong to the second socket. */
    int same_socket = peer->pci_domain == gpu->pci_domain && (peer->pci_bus ^ gpu->pci_bus) < 0x80;
    *level = peer == gpu ? TOPOLOGY_SAME : same_socket ? TOPOLOGY_NODE : TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t other, unsigned caps,
                                                unsigned *status) {
    ENTER_GPU(device);
    const struct gpu *peer = gpu_of(other);
    REQUIRE(peer && status, NVML_ERROR_INVALID_ARGUMENT);
    int linked = gpu->nvlink_count && peer->nvlink_count && !gpu->mig_current && !peer->mig_current;
    *status = caps == P2P_CAPS_INDEX_NVLINK && !linked ? P2P_NOT_SUPPORTED : P2P_OK;
    return NVML_SUCCESS;
}
