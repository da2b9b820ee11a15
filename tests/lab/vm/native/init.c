/* The VM's first process: load the kernel's modules, lay the state disk over the machines' common tree, start systemd.
 * Disks: vda is the tree, read-only; vdb has delta/ (the host's own files), disks/ (the nodes') and settings/. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void fail(const char *what, const char *name)
{
    fprintf(stderr, "lab init: %s %s: %s\n", what, name, strerror(errno));
    sleep(2); /* the console is slow, and the kernel panics without its first process */
    exit(1);
}

static void attach(const char *source, const char *target, const char *kind, unsigned long flags, const char *data)
{
    mkdir(target, 0755);
    if (mount(source, target, kind, flags, data))
        fail("cannot mount", target);
}

/* The order in the folder is the order of loading: 00-…, 01-… */
static void load_modules(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort), index;
    char path[512];

    for (index = 0; index < count; index++) {
        int file;

        if (entries[index]->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entries[index]->d_name);
        file = open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0 || syscall(SYS_finit_module, file, "", 0))
            fail("cannot load", path);
        close(file);
    }
}

static void wait_for(const char *device)
{
    int tries;

    for (tries = 0; access(device, F_OK); tries++) {
        if (tries > 3000)
            fail("no such disk", device);
        usleep(10000);
    }
}

int main(void)
{
    attach("dev", "/dev", "devtmpfs", 0, "");
    load_modules("/modules");
    wait_for("/dev/vda");
    wait_for("/dev/vdb");
    attach("/dev/vda", "/base", "ext4", MS_RDONLY, "");
    attach("/dev/vdb", "/state", "ext4", 0, "");
    mkdir("/state/work", 0755);
    attach("overlay", "/root", "overlay", 0, "lowerdir=/base,upperdir=/state/delta,workdir=/state/work");
    attach("/base", "/root/srv/base", NULL, MS_BIND, NULL);
    attach("/state/disks", "/root/srv/disks", NULL, MS_BIND, NULL);
    attach("/state/settings", "/root/var/lib/lab", NULL, MS_BIND, NULL);
    attach("/dev", "/root/dev", NULL, MS_MOVE, NULL);
    if (chdir("/root") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/"))
        fail("cannot enter", "/root");
    execl("/sbin/init", "init", NULL);
    fail("cannot start", "/sbin/init");
}
