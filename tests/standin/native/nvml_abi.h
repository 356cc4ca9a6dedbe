/*
 * The part of NVML's binary interface that the stand-in implements: return codes and structs, laid out as in nvml.h.
 * Sizes are part of the interface (versioned structs carry theirs), so they are asserted here.
 */
#ifndef STANDIN_NVML_ABI_H
#define STANDIN_NVML_ABI_H

#define NVML_EXPORT __attribute__((visibility("default")))

enum nvml_return {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_IN_USE = 19,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_UNKNOWN = 999,
};
typedef int nvmlReturn_t;

#define NVML_INIT_FLAG_NO_GPUS 1u

/* A versioned struct starts with its own size and, in the top byte, its version. */
#define STRUCT_VERSION(type, version) ((unsigned)sizeof(type) | ((unsigned)(version) << 24))
#define ASSERT_SIZE(type, size) _Static_assert(sizeof(type) == (size), #type " differs from nvml.h")

typedef struct gpu_or_mig *nvmlDevice_t;
typedef struct gpu_instance *nvmlGpuInstance_t;
typedef struct compute_instance *nvmlComputeInstance_t;
typedef struct event_set *nvmlEventSet_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
ASSERT_SIZE(nvmlPciInfo_t, 68);

typedef struct {
    unsigned version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
    char busId[32];
} nvmlPciInfoExt_v1_t;
ASSERT_SIZE(nvmlPciInfoExt_v1_t, 64);

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
ASSERT_SIZE(nvmlMemory_t, 24);

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
ASSERT_SIZE(nvmlMemory_v2_t, 40);

typedef struct {
    unsigned version, value;
} nvmlVersionedValue_t; /* nvmlDeviceAddressingMode_v1_t, nvmlDeviceCapabilities_v1_t */
ASSERT_SIZE(nvmlVersionedValue_t, 8);

typedef struct {
    unsigned version, sensorType;
    int temperature;
} nvmlTemperature_v1_t;
ASSERT_SIZE(nvmlTemperature_v1_t, 12);

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned version;
    unsigned long long aggregateUncParity, aggregateUncSecDed, aggregateCor;
    unsigned long long volatileUncParity, volatileUncSecDed, volatileCor;
    unsigned long long aggregateUncBucketL2, aggregateUncBucketSm, aggregateUncBucketPcie, aggregateUncBucketMcu,
        aggregateUncBucketOther;
    unsigned bThresholdExceeded;
} nvmlEccSramErrorStatus_v1_t;
ASSERT_SIZE(nvmlEccSramErrorStatus_v1_t, 104);

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;
ASSERT_SIZE(nvmlFieldValue_t, 40);

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
ASSERT_SIZE(nvmlGpuFabricInfo_t, 28);

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
} nvmlGpuFabricInfo_v2_t;
ASSERT_SIZE(nvmlGpuFabricInfo_v2_t, 36);

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned char state;
    unsigned healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;
ASSERT_SIZE(nvmlGpuFabricInfo_v3_t, 40);

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlEventData_t;
ASSERT_SIZE(nvmlEventData_t, 32);

typedef struct {
    unsigned multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount, sharedEncoderCount, sharedJpegCount,
        sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;
ASSERT_SIZE(nvmlDeviceAttributes_t, 40);

typedef struct {
    unsigned start, size;
} nvmlPlacement_t; /* nvmlGpuInstancePlacement_t, nvmlComputeInstancePlacement_t */

typedef struct {
    unsigned id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
} nvmlGpuInstanceProfileInfo_t;
ASSERT_SIZE(nvmlGpuInstanceProfileInfo_t, 48);

typedef struct {
    unsigned version, id, isP2pSupported, sliceCount, instanceCount, multiprocessorCount, copyEngineCount, decoderCount,
        encoderCount, jpegCount, ofaCount;
    unsigned long long memorySizeMB;
    char name[96];
} nvmlGpuInstanceProfileInfo_v2_t;
ASSERT_SIZE(nvmlGpuInstanceProfileInfo_v2_t, 152);

typedef struct {
    nvmlDevice_t device;
    unsigned id, profileId;
    nvmlPlacement_t placement;
} nvmlGpuInstanceInfo_t;
ASSERT_SIZE(nvmlGpuInstanceInfo_t, 24);

typedef struct {
    unsigned id, sliceCount, instanceCount, multiprocessorCount, sharedCopyEngineCount, sharedDecoderCount,
        sharedEncoderCount, sharedJpegCount, sharedOfaCount;
} nvmlComputeInstanceProfileInfo_t;
ASSERT_SIZE(nvmlComputeInstanceProfileInfo_t, 36);

typedef struct {
    unsigned version;
    nvmlComputeInstanceProfileInfo_t info;
    char name[96];
} nvmlComputeInstanceProfileInfo_v2_t;
ASSERT_SIZE(nvmlComputeInstanceProfileInfo_v2_t, 136);

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t gpuInstance;
    unsigned id, profileId;
    nvmlPlacement_t placement;
} nvmlComputeInstanceInfo_t;
ASSERT_SIZE(nvmlComputeInstanceInfo_t, 32);

#endif
