/* What both stand-in libraries know of the GPUs: the kernel side's own words in /proc/driver/nvidia. */
#ifndef LAB_GPUS_H
#define LAB_GPUS_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef LAB_DRIVER_VERSION
#error "the libraries' own version is given by the build"
#endif

#define LAB_MAX_GPUS 16
#define LAB_MIB (1024ULL * 1024ULL)
#define LAB_GPU_BYTES (97887ULL * LAB_MIB)
#define LAB_PER_PROCESS_BYTES (512ULL * LAB_MIB)

struct lab_gpu {
    int minor;
    char name[96];
    char uuid[64];
    char bus[32];
};

/* open() of a device node: 0, or the errno. A regular file in its place opens for root, but is no device. */
static int lab_open_error(const char *path)
{
    struct stat status;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NOCTTY), error = 0;

    if (fd < 0)
        return errno;
    if (fstat(fd, &status) || !S_ISCHR(status.st_mode))
        error = ENOTTY;
    close(fd);
    return error;
}

static void lab_node_path(int minor, char *path, size_t size)
{
    snprintf(path, size, "/dev/nvidia%d", minor);
}

static int lab_by_minor(const void *a, const void *b)
{
    return ((const struct lab_gpu *)a)->minor - ((const struct lab_gpu *)b)->minor;
}

/* The GPUs whose device node this process may open, in order of their minors. */
static int lab_gpus(struct lab_gpu *gpus)
{
    const char *root = "/proc/driver/nvidia/gpus";
    DIR *folder = opendir(root);
    struct dirent *entry;
    int count = 0;

    if (!folder)
        return 0;
    while ((entry = readdir(folder)) && count < LAB_MAX_GPUS) {
        struct lab_gpu gpu = {-1, "", "", ""};
        char path[300], line[256], node[64];
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s/information", root, entry->d_name);
        if (!(file = fopen(path, "re")))
            continue;
        while (fgets(line, sizeof line, file)) {
            line[strcspn(line, "\n")] = 0;
            sscanf(line, "Model: %95[^\n]", gpu.name);
            sscanf(line, "GPU UUID: %63s", gpu.uuid);
            sscanf(line, "Bus Location: %31s", gpu.bus);
            sscanf(line, "Device Minor: %d", &gpu.minor);
        }
        fclose(file);
        lab_node_path(gpu.minor, node, sizeof node);
        if (gpu.minor >= 0 && !lab_open_error(node))
            gpus[count++] = gpu;
    }
    closedir(folder);
    qsort(gpus, (size_t)count, sizeof *gpus, lab_by_minor);
    return count;
}

/* Whether the loaded kernel module has another version than this library. */
static int lab_version_mismatch(void)
{
    char line[512] = "";
    FILE *file = fopen("/proc/driver/nvidia/version", "re");

    if (!file)
        return 0;
    if (!fgets(line, sizeof line, file))
        line[0] = 0;
    fclose(file);
    return strstr(line, " " LAB_DRIVER_VERSION " ") == NULL;
}

#endif
