/* Events, error counters, temperature, load. */
#include <string.h>
#include <time.h>

#include "internal.h"

enum { MAX_EVENT_SETS = 8, POLL_MS = 2 };
enum { SENSOR_GPU = 0 };
enum { THRESHOLD_SHUTDOWN = 0, THRESHOLD_SLOWDOWN = 1 };

/* A process's subscription; where it stands in the ring of events is its own business. */
struct event_set {
    unsigned used;
    uint32_t seen;
    uint64_t masks[MAX_GPUS];
};
static struct event_set event_sets[MAX_EVENT_SETS];

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(types);
    *types = gpu->supported_events;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER_SESSION();
    REQUIRE_ARGUMENT(set);
    nvmlReturn_t result = NVML_ERROR_MEMORY;
    state_lock();
    for (unsigned i = 0; i < MAX_EVENT_SETS && result; i++) {
        if (event_sets[i].used) continue;
        event_sets[i] = (struct event_set){.used = 1, .seen = state->event_count};
        *set = &event_sets[i];
        result = NVML_SUCCESS;
    }
    state_unlock();
    return result;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER_GPU(device);
    REQUIRE(set && set->used, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!(types & ~gpu->supported_events), NVML_ERROR_NOT_SUPPORTED);
    set->masks[gpu - state->gpus] |= types;
    return NVML_SUCCESS;
}

/* The next event that the set subscribed to; 0 when there is none yet. */
static int next_event(struct event_set *set, nvmlEventData_t *data) {
    uint32_t count = __atomic_load_n(&state->event_count, __ATOMIC_ACQUIRE);
    if (count - set->seen > MAX_EVENTS) set->seen = count - MAX_EVENTS; /* older ones are overwritten */
    while (set->seen != count) {
        const struct event *event = &state->events[set->seen++ % MAX_EVENTS];
        if (event->gpu >= MAX_GPUS || !(set->masks[event->gpu] & event->type)) continue;
        data->device = (nvmlDevice_t)(void *)&state->gpus[event->gpu];
        data->eventType = event->type;
        data->eventData = event->data;
        data->gpuInstanceId = event->gpu_instance;
        data->computeInstanceId = event->compute_instance;
        return 1;
    }
    return 0;
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    const struct timespec tick = {0, POLL_MS * 1000000L};
    for (unsigned waited = 0;; waited += POLL_MS) {
        ENTER_SESSION(); /* also while waiting, so that an injected error ends the wait */
        REQUIRE(set && set->used && data, NVML_ERROR_INVALID_ARGUMENT);
        if (next_event(set, data)) return NVML_SUCCESS;
        if (waited >= timeout_ms) return NVML_ERROR_TIMEOUT;
        nanosleep(&tick, NULL);
    }
}

NVML_EXPORT nvmlReturn_t nvmlEventSetWait(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    return nvmlEventSetWait_v2(set, data, timeout_ms);
}

NVML_EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER_SESSION();
    REQUIRE(set && set->used, NVML_ERROR_INVALID_ARGUMENT);
    set->used = 0;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned uncorrected, unsigned aggregate,
                                                     unsigned long long *count) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(count);
    REQUIRE(gpu->ecc_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    if (uncorrected)
        *count = aggregate ? gpu->ecc_aggregate_uncorrected : gpu->ecc_volatile_uncorrected;
    else
        *count = aggregate ? gpu->ecc_aggregate_corrected : gpu->ecc_volatile_corrected;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned uncorrected, unsigned aggregate,
                                                         unsigned location, unsigned long long *count) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(count);
    REQUIRE(gpu->ecc_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    *count = 0;
    if (location == 2) /* device memory; caches and registers are clean */
        return nvmlDeviceGetTotalEccErrors(device, uncorrected, aggregate, count);
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, nvmlEccSramErrorStatus_v1_t *status) {
    ENTER_GPU(device);
    REQUIRE_VERSION(status, nvmlEccSramErrorStatus_v1_t, 1);
    REQUIRE(gpu->ecc_mode == 1, NVML_ERROR_NOT_SUPPORTED);
    unsigned version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *corrected, unsigned *uncorrected,
                                                   unsigned *pending, unsigned *failure_occurred) {
    ENTER_GPU(device);
    REQUIRE(corrected && uncorrected && pending && failure_occurred, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE_SUPPORTED(gpu->remapped_correctable);
    *corrected = gpu->remapped_correctable;
    *uncorrected = gpu->remapped_uncorrectable;
    *pending = gpu->remapped_pending;
    *failure_occurred = gpu->remapped_failure;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned *pending) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(pending);
    REQUIRE_SUPPORTED(gpu->retired_pages_pending);
    *pending = gpu->retired_pages_pending;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    ENTER_GPU(device);
    REQUIRE(celsius && sensor == SENSOR_GPU, NVML_ERROR_INVALID_ARGUMENT);
    *celsius = gpu->temperature;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature) {
    ENTER_GPU(device);
    REQUIRE_VERSION(temperature, nvmlTemperature_v1_t, 1);
    REQUIRE(temperature->sensorType == SENSOR_GPU, NVML_ERROR_INVALID_ARGUMENT);
    temperature->temperature = (int)gpu->temperature;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(celsius);
    REQUIRE(threshold == THRESHOLD_SHUTDOWN || threshold == THRESHOLD_SLOWDOWN, NVML_ERROR_NOT_SUPPORTED);
    *celsius = threshold == THRESHOLD_SHUTDOWN ? gpu->temperature_shutdown : gpu->temperature_slowdown;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(utilization);
    REQUIRE(!gpu->mig_current, NVML_ERROR_NOT_SUPPORTED);
    utilization->gpu = gpu->utilization_gpu;
    utilization->memory = gpu->utilization_memory;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *reasons) {
    ENTER_GPU(device);
    REQUIRE_ARGUMENT(reasons);
    *reasons = gpu->clocks_event_reasons;
    return NVML_SUCCESS;
}

NVML_EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *reasons) {
    return nvmlDeviceGetCurrentClocksEventReasons(device, reasons);
}
