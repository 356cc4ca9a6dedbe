/* What the files of the stand-in share: the mapped state, call checks, handles. */
#ifndef STANDIN_INTERNAL_H
#define STANDIN_INTERNAL_H

#include <stddef.h>

#include "nvml_abi.h"
#include "state.h"

/* The mapped state file; NULL before the first nvmlInit. */
extern struct state *state;

/* GPUs that this process sees: those attached when it initialised, as with the real library. */
extern unsigned visible_count;
extern struct gpu *visible[MAX_GPUS];

/* Session: reference-counted by nvmlInit and nvmlShutdown. */
nvmlReturn_t session_open(unsigned flags);
nvmlReturn_t session_close(void);

/* What starts every call: is there a session, is the driver still the same, is something injected, is the GPU lost? */
nvmlReturn_t enter(const char *function, const struct gpu *gpu);

/* Injections alone, for calls that need no session. */
nvmlReturn_t injected(const char *function, const struct gpu *gpu);

/* Changes to the state are exclusive among threads and processes. */
void state_lock(void);
void state_unlock(void);

/* Handles are pointers into the mapped state; anything else gives NULL. */
struct gpu *gpu_of(nvmlDevice_t device);               /* the GPU of a GPU or MIG device handle */
struct compute_instance *mig_of(nvmlDevice_t device);  /* the compute instance of a MIG device handle, else NULL */
struct gpu *gpu_of_instance(const void *instance);     /* the GPU that holds a GPU or compute instance */
struct gpu_instance *instance_of(nvmlGpuInstance_t handle);
struct gpu_instance *parent_of(const struct compute_instance *compute);
struct compute_instance *compute_of(nvmlComputeInstance_t handle);
unsigned index_of(const struct gpu *gpu);

nvmlReturn_t put_text(char *buffer, unsigned size, const char *text);

/* Starts a function that takes a GPU or MIG device handle: defines gpu, or returns. */
#define ENTER_DEVICE(device)                                  \
    struct gpu *gpu = gpu_of(device);                         \
    do {                                                      \
        nvmlReturn_t failure = enter(__func__, gpu);          \
        if (failure) return failure;                          \
        if (!gpu) return NVML_ERROR_INVALID_ARGUMENT;         \
    } while (0)

/* The same for functions that refuse MIG device handles. */
#define ENTER_GPU(device)                                     \
    ENTER_DEVICE(device);                                     \
    if (mig_of(device)) return NVML_ERROR_INVALID_ARGUMENT

#define ENTER_SESSION()                                       \
    do {                                                      \
        nvmlReturn_t failure = enter(__func__, NULL);         \
        if (failure) return failure;                          \
    } while (0)

#define REQUIRE(condition, error) \
    do {                          \
        if (!(condition)) return error; \
    } while (0)

#define REQUIRE_ARGUMENT(pointer) REQUIRE(pointer, NVML_ERROR_INVALID_ARGUMENT)
#define REQUIRE_SUPPORTED(field) REQUIRE((field) != UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED)
#define REQUIRE_VERSION(argument, type, number)                                                    \
    do {                                                                                           \
        REQUIRE_ARGUMENT(argument);                                                                \
        REQUIRE((argument)->version == STRUCT_VERSION(type, number), NVML_ERROR_ARGUMENT_VERSION_MISMATCH); \
    } while (0)

#endif
