/* libnvidia-ml.so.1 stand-in: versions, names, memory and processes, in the real library's structures. */
#include "gpus.h"

#define EXPORT __attribute__((visibility("default")))
#define NVML_SUCCESS 0
#define NVML_ERROR_UNINITIALIZED 1
#define NVML_ERROR_INVALID_ARGUMENT 2
#define NVML_ERROR_INSUFFICIENT_SIZE 7
#define NVML_ERROR_DRIVER_NOT_LOADED 9
#define NVML_ERROR_LIB_RM_VERSION_MISMATCH 18

typedef struct { unsigned long long total, free, used; } nvmlMemory_t;
typedef struct {
    unsigned pid;
    unsigned long long used_gpu_memory;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} nvmlPciInfo_t;

static struct lab_gpu gpus[LAB_MAX_GPUS];
static int count = -1;

EXPORT int nvmlInit_v2(void)
{
    if (lab_open_error("/dev/nvidiactl"))
        return NVML_ERROR_DRIVER_NOT_LOADED;
    if (lab_version_mismatch())
        return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    count = lab_gpus(gpus);
    return NVML_SUCCESS;
}

EXPORT int nvmlInit(void) { return nvmlInit_v2(); }

EXPORT int nvmlShutdown(void)
{
    if (count < 0)
        return NVML_ERROR_UNINITIALIZED;
    count = -1;
    return NVML_SUCCESS;
}

EXPORT const char *nvmlErrorString(int error)
{
    switch (error) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT int nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    if (count < 0)
        return NVML_ERROR_UNINITIALIZED;
    return (unsigned)snprintf(version, size, "%s", LAB_DRIVER_VERSION) < size ? NVML_SUCCESS
                                                                              : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    return (unsigned)snprintf(version, size, "13.%s", LAB_DRIVER_VERSION) < size ? NVML_SUCCESS
                                                                                 : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetCount_v2(unsigned *number)
{
    if (count < 0)
        return NVML_ERROR_UNINITIALIZED;
    *number = (unsigned)count;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (count < 0)
        return NVML_ERROR_UNINITIALIZED;
    if (index >= (unsigned)count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *handle = &gpus[index];
    return NVML_SUCCESS;
}

static int copy_text(const char *text, char *out, unsigned size)
{
    return (unsigned)snprintf(out, size, "%s", text) < size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

EXPORT int nvmlDeviceGetName(void *handle, char *name, unsigned size)
{
    return copy_text(((struct lab_gpu *)handle)->name, name, size);
}

EXPORT int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned size)
{
    return copy_text(((struct lab_gpu *)handle)->uuid, uuid, size);
}

EXPORT int nvmlDeviceGetMinorNumber(void *handle, unsigned *minor)
{
    *minor = (unsigned)((struct lab_gpu *)handle)->minor;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *handle, nvmlPciInfo_t *info)
{
    struct lab_gpu *gpu = handle;

    memset(info, 0, sizeof *info);
    sscanf(gpu->bus, "%x:%x:%x", &info->domain, &info->bus, &info->device);
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff,
             info->bus & 0xff, info->device & 0xff);
    info->pci_device_id = 0x2BB110DE;
    return NVML_SUCCESS;
}

/* The processes of this pid namespace that hold the GPU's node open. */
static unsigned holders(int minor, unsigned *pids, unsigned room)
{
    char node[64];
    DIR *processes = opendir("/proc");
    struct dirent *process;
    unsigned found = 0;

    lab_node_path(minor, node, sizeof node);
    while (processes && (process = readdir(processes))) {
        char folder[300], link[600], target[300];
        struct dirent *fd;
        DIR *fds;
        long length = 0;

        if (process->d_name[0] < '0' || process->d_name[0] > '9')
            continue;
        snprintf(folder, sizeof folder, "/proc/%s/fd", process->d_name);
        if (!(fds = opendir(folder)))
            continue;
        while ((fd = readdir(fds))) {
            snprintf(link, sizeof link, "%s/%s", folder, fd->d_name);
            length = readlink(link, target, sizeof target - 1);
            if (length > 0) {
                target[length] = 0;
                if (!strcmp(target, node))
                    break;
            }
        }
        if (fd) {
            if (found < room)
                pids[found] = (unsigned)atoi(process->d_name);
            found++;
        }
        closedir(fds);
    }
    if (processes)
        closedir(processes);
    return found;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *handle, nvmlMemory_t *memory)
{
    memory->total = LAB_GPU_BYTES;
    memory->used = LAB_MIB + LAB_PER_PROCESS_BYTES * holders(((struct lab_gpu *)handle)->minor, NULL, 0);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *number, nvmlProcessInfo_t *infos)
{
    unsigned pids[64], room = infos ? *number : 0, index;
    unsigned found = holders(((struct lab_gpu *)handle)->minor, pids, 64);

    for (index = 0; index < found && index < room && index < 64; index++)
        infos[index] = (nvmlProcessInfo_t){pids[index], LAB_PER_PROCESS_BYTES, ~0U, ~0U};
    *number = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}
