/* The mapped state file, handles into it, and what a test has injected. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

struct state *state;
unsigned visible_count;
struct gpu *visible[MAX_GPUS];

static int state_fd = -1;
static dev_t state_device;
static ino_t state_inode;
static unsigned session_count;
static uint32_t session_epoch;
static pthread_mutex_t session_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t change_mutex = PTHREAD_MUTEX_INITIALIZER;

/*
 * Maps the file named by $NVML_STANDIN_STATE. It is looked up at every first init, so one process may turn to another
 * machine. An older mapping is kept: a call that still waits in an injected delay may return into it.
 */
static nvmlReturn_t map_state(void) {
    const char *path = getenv("NVML_STANDIN_STATE");
    if (!path) return NVML_ERROR_DRIVER_NOT_LOADED;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return errno == EACCES ? NVML_ERROR_NO_PERMISSION : NVML_ERROR_DRIVER_NOT_LOADED;
    struct stat info;
    if (fstat(fd, &info)) {
        close(fd);
        return NVML_ERROR_UNKNOWN;
    }
    if (state && info.st_dev == state_device && info.st_ino == state_inode) {
        close(fd);
        return NVML_SUCCESS;
    }
    if (info.st_size != (off_t)sizeof(struct state)) {
        close(fd);
        return NVML_ERROR_UNKNOWN;
    }
    struct state *mapped = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) {
        close(fd);
        return NVML_ERROR_MEMORY;
    }
    if (mapped->magic != STATE_MAGIC || mapped->layout_version != LAYOUT_VERSION ||
        mapped->layout_size != sizeof(struct state)) {
        munmap(mapped, sizeof(struct state));
        close(fd);
        return NVML_ERROR_UNKNOWN;
    }
    state = mapped;
    state_fd = fd;
    state_device = info.st_dev;
    state_inode = info.st_ino;
    return NVML_SUCCESS;
}

static nvmlReturn_t first_open(unsigned flags) {
    nvmlReturn_t failure = map_state();
    if (failure) return failure;
    failure = injected("nvmlInitWithFlags", NULL);
    if (failure) return failure;
    if (!state->driver_loaded) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (strcmp(state->library_version, state->kernel_version)) return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    visible_count = 0;
    for (unsigned slot = 0; slot < MAX_GPUS; slot++)
        if (state->gpus[slot].attached) visible[visible_count++] = &state->gpus[slot];
    if (!visible_count && !(flags & NVML_INIT_FLAG_NO_GPUS)) return NVML_ERROR_GPU_NOT_FOUND;
    session_epoch = state->driver_epoch;
    return NVML_SUCCESS;
}

nvmlReturn_t session_open(unsigned flags) {
    pthread_mutex_lock(&session_mutex);
    nvmlReturn_t failure = session_count ? NVML_SUCCESS : first_open(flags);
    if (!failure) session_count++;
    pthread_mutex_unlock(&session_mutex);
    return failure;
}

nvmlReturn_t session_close(void) {
    pthread_mutex_lock(&session_mutex);
    nvmlReturn_t failure = session_count ? NVML_SUCCESS : NVML_ERROR_UNINITIALIZED;
    if (!failure) session_count--;
    pthread_mutex_unlock(&session_mutex);
    return failure;
}

nvmlReturn_t enter(const char *function, const struct gpu *gpu) {
    if (!session_count) return NVML_ERROR_UNINITIALIZED;
    if (!state->driver_loaded) return NVML_ERROR_DRIVER_NOT_LOADED;
    if (session_epoch != state->driver_epoch) return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    nvmlReturn_t failure = injected(function, gpu);
    if (failure) return failure;
    return gpu && gpu->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

/* "nvmlDeviceGetCount" stands for nvmlDeviceGetCount and nvmlDeviceGetCount_v2. */
static int names(const char *pattern, const char *function) {
    size_t length = strlen(pattern);
    if (strncmp(pattern, function, length)) return 0;
    const char *rest = function + length;
    return !*rest || (rest[0] == '_' && rest[1] == 'v' && rest[2] >= '0' && rest[2] <= '9');
}

static void wait_for(const struct injection *injection) {
    const struct timespec tick = {0, 2000000};
    struct timespec start, now;
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        nanosleep(&tick, NULL);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (__atomic_load_n(&injection->used, __ATOMIC_ACQUIRE) &&
             (now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < (long)injection->delay_ms);
}

nvmlReturn_t injected(const char *function, const struct gpu *gpu) {
    nvmlReturn_t failure = NVML_SUCCESS;
    uint32_t slot = gpu ? (uint32_t)(gpu - state->gpus) : NO_GPU;
    for (unsigned i = 0; i < MAX_INJECTIONS; i++) {
        struct injection *injection = &state->injections[i];
        if (!__atomic_load_n(&injection->used, __ATOMIC_ACQUIRE) || !names(injection->function, function)) continue;
        if (injection->gpu != NO_GPU && injection->gpu != slot) continue;
        uint32_t remaining = __atomic_load_n(&injection->remaining, __ATOMIC_ACQUIRE);
        uint32_t error = injection->error;
        if (remaining && __atomic_sub_fetch(&injection->remaining, 1, __ATOMIC_ACQ_REL) == 0)
            __atomic_store_n(&injection->used, 0, __ATOMIC_RELEASE);
        __atomic_add_fetch(&injection->hits, 1, __ATOMIC_RELAXED);
        if (injection->delay_ms) wait_for(injection);
        if (error) failure = (nvmlReturn_t)error;
    }
    return failure;
}

void state_lock(void) {
    pthread_mutex_lock(&change_mutex);
    while (flock(state_fd, LOCK_EX) && errno == EINTR) {
    }
}

void state_unlock(void) {
    flock(state_fd, LOCK_UN);
    pthread_mutex_unlock(&change_mutex);
}

/* The GPU whose bytes include the address. */
static struct gpu *gpu_around(const void *address) {
    const char *byte = address, *first = (const char *)&state->gpus[0], *end = (const char *)&state->gpus[MAX_GPUS];
    if (!state || byte < first || byte >= end) return NULL;
    return &state->gpus[(size_t)(byte - first) / sizeof(struct gpu)];
}

static struct gpu_instance *gpu_instance_around(const void *address) {
    struct gpu *gpu = gpu_around(address);
    if (!gpu) return NULL;
    const char *byte = address, *first = (const char *)&gpu->gpu_instances[0];
    const char *end = (const char *)&gpu->gpu_instances[MAX_GPU_INSTANCES];
    if (byte < first || byte >= end) return NULL;
    return &gpu->gpu_instances[(size_t)(byte - first) / sizeof(struct gpu_instance)];
}

struct gpu *gpu_of(nvmlDevice_t device) {
    struct gpu *gpu = gpu_around(device);
    if (gpu && (void *)device == (void *)gpu) return gpu;
    return mig_of(device) ? gpu : NULL;
}

struct compute_instance *mig_of(nvmlDevice_t device) { return compute_of((nvmlComputeInstance_t)(void *)device); }

struct gpu *gpu_of_instance(const void *instance) { return gpu_around(instance); }

struct gpu_instance *instance_of(nvmlGpuInstance_t handle) {
    struct gpu_instance *instance = gpu_instance_around(handle);
    return instance == handle && instance && instance->used ? instance : NULL;
}

struct gpu_instance *parent_of(const struct compute_instance *compute) { return gpu_instance_around(compute); }

struct compute_instance *compute_of(nvmlComputeInstance_t handle) {
    struct gpu_instance *parent = gpu_instance_around(handle);
    for (unsigned i = 0; parent && i < MAX_COMPUTE_INSTANCES; i++)
        if (&parent->compute_instances[i] == handle) return handle->used ? handle : NULL;
    return NULL;
}

unsigned index_of(const struct gpu *gpu) {
    for (unsigned index = 0; index < visible_count; index++)
        if (visible[index] == gpu) return index;
    return UNSUPPORTED;
}

nvmlReturn_t put_text(char *buffer, unsigned size, const char *text) {
    if (!buffer) return NVML_ERROR_INVALID_ARGUMENT;
    if (!*text) return NVML_ERROR_NOT_SUPPORTED;
    if (strlen(text) + 1 > size) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return NVML_SUCCESS;
}
