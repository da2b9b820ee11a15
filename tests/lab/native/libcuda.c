/* libcuda.so.1 stand-in. cuInit answers by what really opens: 0; 999 when nvidia-uvm is refused; 100 when no GPU is
 * there; 803 when the kernel module has another version. A number in /etc/lab/cuinit overrides it. */
#include "gpus.h"

#define EXPORT __attribute__((visibility("default")))
#define CUDA_SUCCESS 0
#define CUDA_ERROR_INVALID_VALUE 1
#define CUDA_ERROR_OUT_OF_MEMORY 2
#define CUDA_ERROR_NOT_INITIALIZED 3
#define CUDA_ERROR_NO_DEVICE 100
#define CUDA_ERROR_INVALID_DEVICE 101
#define CUDA_ERROR_INVALID_CONTEXT 201
#define CUDA_ERROR_SYSTEM_DRIVER_MISMATCH 803
#define CUDA_ERROR_UNKNOWN 999

typedef unsigned long long CUdeviceptr;
typedef struct { char bytes[16]; } CUuuid;

static struct lab_gpu gpus[LAB_MAX_GPUS];
static unsigned long long used[LAB_MAX_GPUS];
static int nodes[LAB_MAX_GPUS];
static int count = -1;
/* CUDA's current context belongs to the thread that set it. */
static __thread int current = -1;

static int override(void)
{
    int value = -1;
    FILE *file = fopen("/etc/lab/cuinit", "re");

    if (!file)
        return -1;
    if (fscanf(file, "%d", &value) != 1)
        value = -1;
    fclose(file);
    return value;
}

EXPORT int cuInit(unsigned flags)
{
    int forced = override(), found, index;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (forced > 0)
        return forced;
    if (lab_open_error("/dev/nvidiactl"))
        return CUDA_ERROR_NO_DEVICE;
    if (lab_version_mismatch())
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    if (!(found = lab_gpus(gpus)))
        return CUDA_ERROR_NO_DEVICE;
    if (lab_open_error("/dev/nvidia-uvm"))
        return CUDA_ERROR_UNKNOWN;
    for (index = 0; count < 0 && index < found; index++)
        nodes[index] = -1;
    count = found;
    return CUDA_SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 13000;
    return CUDA_SUCCESS;
}

static int check(int device)
{
    if (count < 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    return device >= 0 && device < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT int cuDeviceGetCount(int *number)
{
    if (count < 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    *number = count;
    return CUDA_SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    int error = check(ordinal);

    if (!error)
        *device = ordinal;
    return error;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
    int error = check(device);

    if (!error)
        snprintf(name, (size_t)size, "%s", gpus[device].name);
    return error;
}

/* "GPU-01234567-89ab-…" to sixteen bytes. */
EXPORT int cuDeviceGetUuid(CUuuid *uuid, int device)
{
    int error = check(device), byte = 0;
    const char *text;

    if (error)
        return error;
    for (text = gpus[device].uuid + 4; *text && byte < 16; text += 2) {
        unsigned value;

        if (*text == '-')
            text++;
        if (sscanf(text, "%2x", &value) != 1)
            break;
        uuid->bytes[byte++] = (char)value;
    }
    return CUDA_SUCCESS;
}

EXPORT int cuDeviceGetUuid_v2(CUuuid *uuid, int device) { return cuDeviceGetUuid(uuid, device); }

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    int error = check(device);

    if (!error)
        *bytes = LAB_GPU_BYTES;
    return error;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    int error = check(device);
    char path[64];

    if (error)
        return error;
    if (nodes[device] < 0) { /* held open while the context lives: a process on the GPU can be seen */
        lab_node_path(gpus[device].minor, path, sizeof path);
        nodes[device] = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY);
        if (nodes[device] < 0)
            return CUDA_ERROR_UNKNOWN;
    }
    *context = &gpus[device];
    return CUDA_SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    int error = check(device);

    if (!error && nodes[device] >= 0) {
        close(nodes[device]);
        nodes[device] = -1;
        if (current == device)
            current = -1;
    }
    return error;
}

EXPORT int cuDevicePrimaryCtxRelease(int device) { return cuDevicePrimaryCtxRelease_v2(device); }

EXPORT int cuCtxSetCurrent(void *context)
{
    if (count < 0)
        return CUDA_ERROR_NOT_INITIALIZED;
    current = context ? (int)((struct lab_gpu *)context - gpus) : -1;
    return CUDA_SUCCESS;
}

EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    int error = cuDevicePrimaryCtxRetain(context, device);

    (void)flags;
    return error ? error : cuCtxSetCurrent(*context);
}

EXPORT int cuCtxDestroy_v2(void *context)
{
    return context ? cuDevicePrimaryCtxRelease_v2((int)((struct lab_gpu *)context - gpus)) : CUDA_ERROR_INVALID_CONTEXT;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    if (current < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *total = LAB_GPU_BYTES;
    *free_bytes = LAB_GPU_BYTES - LAB_PER_PROCESS_BYTES - used[current];
    return CUDA_SUCCESS;
}

/* Each allocation remembers its size and device in front of the memory that stands for it. */
struct allocation {
    size_t bytes;
    int device;
};

EXPORT int cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    struct allocation *allocation;

    if (current < 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > LAB_GPU_BYTES - LAB_PER_PROCESS_BYTES - used[current])
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!(allocation = malloc(sizeof *allocation)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->bytes = bytes;
    allocation->device = current;
    used[current] += bytes;
    *pointer = (CUdeviceptr)(size_t)allocation;
    return CUDA_SUCCESS;
}

EXPORT int cuMemFree_v2(CUdeviceptr pointer)
{
    struct allocation *allocation = (struct allocation *)(size_t)pointer;

    if (!allocation)
        return CUDA_ERROR_INVALID_VALUE;
    used[allocation->device] -= allocation->bytes;
    free(allocation);
    return CUDA_SUCCESS;
}

EXPORT int cuGetErrorName(int error, const char **name)
{
    switch (error) {
    case CUDA_SUCCESS: *name = "CUDA_SUCCESS"; break;
    case CUDA_ERROR_OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case CUDA_ERROR_NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; break;
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: *name = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"; break;
    case CUDA_ERROR_UNKNOWN: *name = "CUDA_ERROR_UNKNOWN"; break;
    default: *name = "CUDA_ERROR"; break;
    }
    return CUDA_SUCCESS;
}
