/*
 * Layout of the state file.
 *
 * Everything the stand-in knows lives in one file that every process maps: GPUs, MIG instances, pending events,
 * injected faults. So instances survive a restart of the driver, two processes see the same GPUs, and a test changes
 * them by writing to the file. layout.py mirrors these structs; layout_size tells when the two have drifted apart.
 */
#ifndef STANDIN_STATE_H
#define STANDIN_STATE_H

#include <stdint.h>

#define STATE_MAGIC 0x4c4d564eu /* "NVML" */
#define LAYOUT_VERSION 1u

#define MAX_GPUS 16
#define MAX_PROFILES 20
#define MAX_PLACEMENTS 8
#define MAX_GPU_INSTANCES 15
#define MAX_COMPUTE_INSTANCES 8
#define MAX_EVENTS 64
#define MAX_INJECTIONS 64
#define MAX_NVLINKS 36

#define NO_GPU 0xffffffffu      /* injection: any GPU, or a call that concerns none */
#define UNSUPPORTED 0xffffffffu /* a field whose function answers NOT_SUPPORTED */

struct mig_profile {
    uint32_t index; /* number for listing */
    uint32_t id;    /* number for creating */
    uint32_t slices;
    uint32_t max_count;
    uint32_t multiprocessors;
    uint32_t copy_engines;
    uint32_t decoders;
    uint32_t encoders;
    uint32_t jpeg_engines;
    uint32_t ofa_engines;
    uint32_t memory_mib;
    uint32_t p2p;
    uint32_t placement_count;
    uint32_t placement_starts[MAX_PLACEMENTS];
    uint32_t placement_size;
    char name[40]; /* without "MIG " */
};

struct compute_instance {
    uint32_t used;
    uint32_t id;
    uint32_t profile;
    uint32_t start;
    uint32_t slices;
    uint32_t multiprocessors;
    char uuid[96];
};

struct gpu_instance {
    uint32_t used;
    uint32_t id;
    uint32_t profile_slot; /* index into gpu.profiles */
    uint32_t start;
    uint32_t size;
    struct compute_instance compute_instances[MAX_COMPUTE_INSTANCES];
};

struct gpu {
    uint32_t attached; /* seen by processes that initialise from now on */
    uint32_t lost;
    uint32_t minor;
    uint32_t brand;
    uint32_t architecture;
    uint32_t compute_major;
    uint32_t compute_minor;
    uint32_t multiprocessors;
    uint32_t pci_domain;
    uint32_t pci_bus;
    uint32_t pci_device;
    uint32_t pci_device_id;
    uint32_t pci_subsystem_id;
    uint32_t module_id;
    uint32_t memory_numa_node;
    uint32_t addressing_mode;
    uint32_t virtualization_mode;
    uint32_t compute_mode;
    uint32_t persistence_mode;
    uint32_t ecc_mode;
    uint32_t ecc_pending_mode;
    uint32_t power_usage_mw;
    uint32_t power_limit_mw;
    uint32_t temperature;
    uint32_t temperature_slowdown;
    uint32_t temperature_shutdown;
    uint32_t utilization_gpu;
    uint32_t utilization_memory;
    uint32_t retired_pages_pending;
    uint32_t remapped_correctable;
    uint32_t remapped_uncorrectable;
    uint32_t remapped_pending;
    uint32_t remapped_failure;
    uint32_t nvlink_count;
    uint32_t nvlink_version; /* nvmlNvlinkVersion_t, not the generation */
    uint32_t nvlink_speed_mbps;
    uint32_t nvlink_to_switch;
    uint32_t nvlink_states[MAX_NVLINKS];
    uint32_t fabric_newest; /* newest nvmlGpuFabricInfo version this driver knows: 1, 2 or 3 */
    uint32_t fabric_state;
    uint32_t fabric_status;
    uint32_t fabric_clique_id;
    uint32_t fabric_health_mask;
    uint32_t fabric_health_summary;
    uint8_t fabric_cluster_uuid[16];
    uint32_t mig_capable;
    uint32_t mig_current;
    uint32_t mig_pending;
    uint32_t mig_toggles_without_reset;
    uint32_t mig_slices;
    uint32_t mig_memory_slices;
    uint32_t mig_max_devices;
    uint32_t profile_count;
    uint64_t memory_total; /* 0: NOT_SUPPORTED, as on unified-memory parts */
    uint64_t memory_used;
    uint64_t memory_reserved;
    uint64_t ecc_volatile_corrected;
    uint64_t ecc_volatile_uncorrected;
    uint64_t ecc_aggregate_corrected;
    uint64_t ecc_aggregate_uncorrected;
    uint64_t supported_events;
    uint64_t clocks_event_reasons;
    char name[96];
    char uuid[96];
    char serial[32];
    char board_part_number[32];
    char vbios_version[32];
    struct mig_profile profiles[MAX_PROFILES];
    struct gpu_instance gpu_instances[MAX_GPU_INSTANCES];
};

struct event {
    uint32_t gpu;
    uint32_t gpu_instance;
    uint32_t compute_instance;
    uint32_t reserved;
    uint64_t type;
    uint64_t data;
};

/* What happens at a call: count it, wait, fail. */
struct injection {
    char function[64]; /* without "_vN" it stands for every version */
    uint32_t used;
    uint32_t gpu;
    uint32_t error;     /* 0: none */
    uint32_t remaining; /* calls it still concerns; 0: all */
    uint32_t delay_ms;  /* ends early when the injection is removed */
    uint32_t hits;
};

struct state {
    uint32_t magic;
    uint32_t layout_version;
    uint32_t layout_size;
    uint32_t driver_loaded;
    uint32_t driver_epoch; /* grows with every load of the kernel module; older sessions are stale */
    uint32_t cuda_version;
    uint32_t event_count;
    uint32_t uuid_serial;
    char library_version[80];
    char kernel_version[80];
    struct event events[MAX_EVENTS];
    struct injection injections[MAX_INJECTIONS];
    struct gpu gpus[MAX_GPUS];
};

#endif
